"""`flatout backtest`: the report, the files it writes, and what it refuses."""

import errno
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from click.testing import Result
from typer.testing import CliRunner

from flatout.bars.read import read_bars
from flatout.bars.synthetic import RandomWalk, built_in_market
from flatout.bars.write import write_bars
from flatout.cli.backtest import SHOWN
from flatout.cli.failures import name_options
from flatout.cli.main import main
from flatout.errors import FlatoutError, RulesError, SettingsError
from flatout.evaluation.backtest import backtest
from flatout.evaluation.baselines import BASELINES, RandomTrader
from flatout.evaluation.policy_backtest import find_rows
from flatout.evaluation.saved_policy import find_policy, load_policy
from rounding import close_to
from small_bundles import bundle_of

N_BARS = 200


@pytest.fixture(scope="module")
def bars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two symbols, hourly from 2021-01-01, as CSV."""
    panel = RandomWalk(n_bars=N_BARS, symbols=("AAA", "BBB")).panel()
    columns = ("open", "high", "low", "close", "volume")
    tables = [
        pl.DataFrame(
            {
                "date": panel.time,
                **{name: getattr(panel, name)[:, i] for name in columns},
                "symbol": symbol,
            },
        ).with_columns(symbol=pl.lit(symbol))
        for i, symbol in enumerate(panel.symbols)
    ]
    path = tmp_path_factory.mktemp("bars") / "bars.csv"
    pl.concat(tables).write_csv(path)
    return path


def call(bars: Path, out: Path, *words: str) -> Result:
    """The command on these bars, with features that are warm after one bar."""
    light = ["--set", "features.indicators=['return_1']"]
    line = ["backtest", "--bars", str(bars), "--out", str(out), *light, *words]
    return CliRunner().invoke(main, line, env={"COLUMNS": "160"})


def report(bars: Path, out: Path, *words: str) -> dict[str, Any]:
    result = call(bars, out, *words, "--json")
    assert result.exit_code == 0, result.output
    said: dict[str, Any] = json.loads(result.stdout)
    return said


def refusal(bars: Path, out: Path, *words: str) -> str:
    result = call(bars, out, *words)
    assert isinstance(result.exception, FlatoutError), result.exception
    assert not out.exists() or not any(out.iterdir())
    return str(result.exception)


def test_json_tells_all_and_the_files_are_written(bars: Path, tmp_path: Path) -> None:
    said = report(bars, tmp_path, "--seed", "3")
    run = Path(said["run"])
    assert run.parent == tmp_path
    assert sorted(path.name for path in run.iterdir()) == [
        "about.json", "equity.html", "ledger.csv", "metrics.json", "settings.json",
    ]  # fmt: skip
    assert json.loads((run / "metrics.json").read_text()) == said
    assert (said["policy"], said["symbols"], said["bar"], said["bars"]) == (
        "equal_weight",
        ["AAA", "BBB"],
        "1h",
        198,
    )
    assert said["fingerprint"] == read_bars(bars).fingerprint
    assert (said["from"][:16], said["to"][:16]) == ("2021-01-01T02:00", "2021-01-09T07:00")
    about = json.loads((run / "about.json").read_text())
    assert (about["source"], about["fingerprint"], about["seed"]) == (
        str(bars),
        said["fingerprint"],
        3,
    )
    settings = json.loads((run / "settings.json").read_text())
    assert settings["settings"]["features"]["indicators"] == ["return_1"]


def test_the_ledger_has_the_fills_that_the_report_counts(bars: Path, tmp_path: Path) -> None:
    said = report(bars, tmp_path)
    ledger = pl.read_csv(Path(said["run"]) / "ledger.csv")
    assert ledger.height == said["fills"] > 0
    assert set(ledger["symbol"]) == {"AAA", "BBB"}


def test_the_picture_names_policies_source_and_assumptions(bars: Path, tmp_path: Path) -> None:
    said = report(bars, tmp_path, "--set", "market.fill=same_close")
    page = (Path(said["run"]) / "equity.html").read_text(encoding="utf-8")
    for name in (*said["metrics"], str(bars.name), "THE SAME CLOSE"):
        assert name in page


@pytest.mark.parametrize("name", BASELINES)
def test_every_policy_stands_beside_the_others(bars: Path, tmp_path: Path, name: str) -> None:
    said = report(bars, tmp_path, "--policy", name)
    assert next(iter(said["metrics"])) == said["policy"] == name
    assert set(said["metrics"]) == {"cash", "buy_and_hold", "equal_weight", "momentum", name}
    assert 0 < said["luck"]["p_value"] <= 1
    assert said["luck"]["return_5"] <= said["luck"]["return_50"] <= said["luck"]["return_95"]
    assert said["metrics"]["cash"]["total_return"] == 0
    assert (said["metrics"][name]["total_return"] == 0) is (name == "cash")


def test_the_table_shows_every_figure_of_every_policy(bars: Path, tmp_path: Path) -> None:
    result = call(bars, tmp_path)
    assert result.exit_code == 0
    for words in (
        "equal_weight",
        "cash",
        "buy_and_hold",
        "momentum",
        *(title for title, _ in SHOWN.values()),
    ):
        assert words in result.output
    assert "fills at the next open; fee 25 bps + half spread 2 bps" in result.output
    assert "199 copies of it" in result.output
    (run,) = tmp_path.iterdir()
    assert run.name in result.output.replace("\n", "")


@pytest.mark.parametrize(
    ("fill", "warned"), [("same_close", True), ("next_open", False), ("next_close", False)]
)
def test_filling_at_the_decisions_own_close_is_warned_about(
    bars: Path, tmp_path: Path, fill: str, warned: bool
) -> None:
    result = call(bars, tmp_path, "--set", f"market.fill={fill}")
    assert ("THE SAME CLOSE" in result.output) is warned
    (metrics,) = tmp_path.glob("*/metrics.json")
    assert ("THE SAME CLOSE" in json.loads(metrics.read_text())["assumptions"]) is warned


def test_costs_and_capital_come_from_the_settings(bars: Path, tmp_path: Path) -> None:
    config = tmp_path / "flatout.toml"
    config.write_text("[market]\ncapital = 777.0\n[market.costs]\nhalf_spread_bps = 50\n")
    dear = report(bars, tmp_path / "runs", "--config", str(config))
    assert "half spread 50 bps" in dear["assumptions"]
    assert "capital 777" in dear["assumptions"]
    cheap = report(bars, tmp_path / "runs")
    assert (
        dear["metrics"]["equal_weight"]["total_return"]
        < cheap["metrics"]["equal_weight"]["total_return"]
    )


def test_the_same_seed_gives_the_same_report(bars: Path, tmp_path: Path) -> None:
    once, again, other = (
        report(bars, tmp_path, "--policy", "random", "--seed", seed) for seed in ("1", "1", "2")
    )
    assert once | {"run": ""} == again | {"run": ""}
    assert once["run"] != again["run"]
    assert other["metrics"]["random"] != once["metrics"]["random"]


def test_luck_follows_from_the_seed(bars: Path, tmp_path: Path) -> None:
    one, other = (
        report(bars, tmp_path, "--policy", "momentum", "--seed", seed) for seed in ("1", "2")
    )
    assert one["metrics"] == other["metrics"]
    assert one["luck"] != other["luck"]


def test_since_and_until_bound_the_run(bars: Path, tmp_path: Path) -> None:
    said = report(bars, tmp_path, "--since", "2021-01-03", "--until", "2021-01-05T12:00")
    assert (said["from"][:16], said["to"][:16], said["bars"]) == (
        "2021-01-03T01:00",
        "2021-01-05T11:00",
        59,
    )


@pytest.mark.parametrize(
    ("since", "until", "rows"),
    [
        (None, None, (10, 200)),
        ("2021-01-01", None, (10, 200)),  # not before the features are warm
        ("2021-01-02", None, (24, 200)),
        ("2021-01-02T00:30", None, (25, 200)),
        (None, "2021-01-02", (10, 24)),
        (None, "2021-01-02T00:30", (10, 25)),
        (None, "2031-01-01", (10, 200)),
    ],
)
def test_times_become_rows(since: str | None, until: str | None, rows: tuple[int, int]) -> None:
    assert find_rows(RandomWalk(n_bars=N_BARS).panel(), (since, until), warm=10) == rows


def test_a_time_may_say_that_it_is_utc() -> None:
    panel = RandomWalk(n_bars=N_BARS).panel()
    assert find_rows(panel, ("2021-01-02T00:00Z", None), warm=10) == (24, 200)


@pytest.mark.parametrize("option", ["--since", "--until"])
@pytest.mark.parametrize("text", ["yesterday", "2021-13-01", "01.02.2021", "", "NaT"])
def test_what_is_no_time_is_refused(bars: Path, tmp_path: Path, option: str, text: str) -> None:
    said = name_options(refusal(bars, tmp_path / "runs", option, text))
    assert said.startswith(f"{option} {text!r} is not a time")
    assert "2024-05-01T12:00" in said


@pytest.mark.parametrize(("option", "text"), [("--since", "2031-01-01"), ("--until", "1999-01-01")])
def test_a_time_beyond_the_bars_is_named(
    bars: Path, tmp_path: Path, option: str, text: str
) -> None:
    """The user gave a time, so the message speaks of times, not of row numbers alone."""
    said = name_options(refusal(bars, tmp_path / "runs", option, text))
    assert option in said
    assert text in said


def test_symbols_are_chosen_and_ordered(bars: Path, tmp_path: Path) -> None:
    assert report(bars, tmp_path, "--symbols", "BBB,AAA")["symbols"] == ["BBB", "AAA"]
    assert report(bars, tmp_path, "--symbols", "BBB")["symbols"] == ["BBB"]


def test_a_blank_after_the_comma_is_no_part_of_a_symbol(bars: Path, tmp_path: Path) -> None:
    """As in `flatout data check`."""
    assert report(bars, tmp_path, "--symbols", "BBB, AAA")["symbols"] == ["BBB", "AAA"]


def test_an_unknown_symbol_is_refused(bars: Path, tmp_path: Path) -> None:
    assert "CCC" in refusal(bars, tmp_path / "runs", "--symbols", "AAA,CCC")


def test_bars_are_resampled_on_request(bars: Path, tmp_path: Path) -> None:
    said = report(bars, tmp_path, "--bar", "4h")
    assert (said["bar"], said["bars"], said["bars_per_year"]) == ("4h", 48, 2190)


def test_an_unknown_policy_is_refused_with_the_nearest(bars: Path, tmp_path: Path) -> None:
    said = refusal(bars, tmp_path / "runs", "--policy", "equalweight")
    assert "there is no policy 'equalweight'" in said
    assert "cash, buy_and_hold, equal_weight, momentum, random" in said
    assert said.endswith("did you mean equal_weight?")


def test_a_policy_like_no_other_gets_no_suggestion() -> None:
    with pytest.raises(RulesError) as caught:
        find_policy("zzz", 0)
    assert "did you mean" not in str(caught.value)


def test_the_random_policy_takes_the_seed() -> None:
    assert find_policy("random", 7) == RandomTrader(seed=7)
    assert find_policy("cash", 7) is BASELINES["cash"]


def test_bad_settings_are_refused_before_anything_runs(bars: Path, tmp_path: Path) -> None:
    result = call(bars, tmp_path / "runs", "--set", "market.capital=-1")
    assert isinstance(result.exception, SettingsError)
    assert not (tmp_path / "runs").exists()


def test_too_few_bars_are_refused(bars: Path, tmp_path: Path) -> None:
    said = refusal(
        bars, tmp_path / "runs", "--bar", "1d", "--set", "features.indicators=['volume']"
    )
    assert "bars" in said


def test_brackets_in_a_file_name_are_shown(bars: Path, tmp_path: Path) -> None:
    odd = tmp_path / "bars[red].csv"
    odd.write_bytes(bars.read_bytes())
    assert "bars[red].csv" in call(odd, tmp_path / "runs").output.replace("\n", "")


def test_the_built_in_market_follows_from_the_seed() -> None:
    panel = built_in_market(n_bars=50, seed=1)
    assert panel.symbols == ("ALFA", "BETA", "DELTA", "GAMMA", "OMEGA")
    np.testing.assert_array_equal(panel.close, built_in_market(n_bars=50, seed=1).close)
    assert not np.array_equal(panel.close, built_in_market(n_bars=50, seed=2).close)


# --- saved policies -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def best(bars: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy for these bars, trained on the first half."""
    folder = tmp_path_factory.mktemp("run") / "best"
    bundle_of(read_bars(bars), seed=3, notes={"seed": 3, "timesteps": 1000}).save(folder)
    return folder


def learned_line(bars: Path, out: Path, best: Path, *words: str) -> Result:
    line = ["backtest", "--bars", str(bars), "--out", str(out), "--policy", str(best), *words]
    return CliRunner().invoke(main, line, env={"COLUMNS": "160"})


def learned_report(bars: Path, out: Path, best: Path, *words: str) -> dict[str, Any]:
    result = learned_line(bars, out, best, *words, "--json")
    assert result.exit_code == 0, result.output
    said: dict[str, Any] = json.loads(result.stdout)
    return said


def learned_refusal(bars: Path, out: Path, best: Path, *words: str) -> str:
    result = learned_line(bars, out, best, *words)
    assert isinstance(result.exception, FlatoutError), result.exception
    assert not out.exists() or not any(out.iterdir())
    return str(result.exception)


def test_a_saved_policy_stands_beside_the_baselines(bars: Path, best: Path, tmp_path: Path) -> None:
    said = learned_report(bars, tmp_path, best)
    assert said["policy"] == next(iter(said["metrics"])) == "best"
    assert list(said["metrics"]) == ["best", "cash", "buy_and_hold", "equal_weight", "momentum"]
    run = Path(said["run"])
    assert run.name.endswith("backtest-best")
    assert json.loads((run / "metrics.json").read_text()) == said
    assert said["fills"] > 10
    policy = load_policy(best)
    history = backtest(policy.bundle.market(read_bars(bars)), policy)
    # here alone, there beside others: another shape of array, in which every bar may round the
    # equity differently
    expected = close_to(history.equity[-1, 0] - 1, roundings=64 * N_BARS, size=1.0)
    assert said["metrics"]["best"]["total_return"] == expected


def test_it_brings_its_features_and_its_market_along(
    bars: Path, best: Path, tmp_path: Path
) -> None:
    said = learned_report(bars, tmp_path, best)
    assert "capital 1e+06" in said["assumptions"]
    # the policy's indicators are warm after eleven bars, not after one
    assert said["bars"] == N_BARS - 11 - 1
    resolved = json.loads((Path(said["run"]) / "settings.json").read_text())
    own = load_policy(best).bundle
    assert resolved["settings"]["market"] == own.settings.model_dump(mode="json")
    assert resolved["settings"]["features"]["lookback"] == 2
    assert resolved["origin"]["market.capital"] == f"the policy {best}"


def test_it_says_where_it_comes_from_and_which_bars_it_knows(
    bars: Path, best: Path, tmp_path: Path
) -> None:
    about = learned_report(bars, tmp_path, best)["bundle"]
    assert about["folder"] == str(best)
    assert about["notes"] == {"seed": 3, "timesteps": 1000}
    assert about["schema_hash"] == load_policy(best).bundle.schema_hash
    assert about["trained_to"] == "2021-01-05T03:00:00Z"
    assert about["bars_of_training"] == 99 - 11
    later = learned_report(bars, tmp_path, best, "--since", "2021-01-05T03:00")["bundle"]
    assert later["bars_of_training"] == 0
    shown = learned_line(bars, tmp_path, best).output
    assert (
        "trained on 2021-01-01T00:00 to 2021-01-05T03:00; 88 of the bars traded here lie between"
        in shown
    )
    assert "best" in shown


def test_the_name_of_a_folder_is_shown_whatever_is_in_it(
    bars: Path, best: Path, tmp_path: Path
) -> None:
    odd = tmp_path / "best[red]"
    load_policy(best).bundle.save(odd)
    assert "best[red]" in learned_line(bars, tmp_path / "runs", odd).output


def test_a_baseline_of_the_same_name_comes_first(
    bars: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cash").mkdir()
    monkeypatch.chdir(tmp_path)
    assert find_policy("cash", 0) is BASELINES["cash"]


def test_settings_stand_over_those_of_the_policy(bars: Path, best: Path, tmp_path: Path) -> None:
    config = tmp_path / "flatout.toml"
    config.write_text("[market.costs]\nhalf_spread_bps = 50\n")
    own = learned_report(bars, tmp_path / "runs", best)
    dear = learned_report(
        bars, tmp_path / "runs", best, "--config", str(config), "--set", "market.capital=777"
    )
    assert "half spread 50 bps" in dear["assumptions"]
    assert "capital 777" in dear["assumptions"]
    assert "half spread 2 bps" in own["assumptions"]
    settings = json.loads((Path(dear["run"]) / "settings.json").read_text())
    # the policy's own still
    assert settings["settings"]["market"]["limits"]["trailing_stop"] == 0.03
    assert settings["origin"]["market.costs.half_spread_bps"] == str(config)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--set", "market.action=trade"],
            "market.action is 'trade', this policy was trained with 'weights'",
        ),
        (
            ["--set", "market.fill=same_close"],
            "market.fill is 'same_close', this policy was trained with 'next_open'",
        ),
        (
            ["--set", "features.lookback=5"],
            "features.lookback is 5, this policy was trained with 2",
        ),
        (["--set", "market.limits.max_short_weight=0"], "market.limits.max_short_weight is 0"),
        (
            ["--symbols", "BBB,AAA"],
            "symbols are BBB, AAA, and this policy trades exactly AAA, BBB, in this order",
        ),
        (["--symbols", "BBB"], "symbols are BBB, and this policy trades exactly AAA, BBB"),
        (["--bar", "4h"], "fitted on bars of 1h, given bars of 4h; give `bar` as 1h"),
    ],
)
def test_what_the_policy_cannot_trade_is_refused(
    bars: Path, best: Path, tmp_path: Path, words: list[str], message: str
) -> None:
    assert message in learned_refusal(bars, tmp_path / "runs", best, *words)


@pytest.fixture(scope="module")
def each(bars: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy that looks at each asset in turn, taught on AAA and BBB."""
    folder = tmp_path_factory.mktemp("each") / "each"
    bundle_of(read_bars(bars), 3, kind="per_asset", distribution="softmax", notes={}).save(folder)
    return folder


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bars of AAA and of three symbols that taught nobody."""
    path = tmp_path_factory.mktemp("others") / "others.parquet"
    symbols = ("AAA", "XXX", "YYY", "ZZZ")
    write_bars(RandomWalk(n_bars=N_BARS, symbols=symbols, seed=2).panel(), path)
    return path


def test_other_symbols_are_traded_where_they_are_named(
    others: Path, each: Path, tmp_path: Path
) -> None:
    names = ["--symbols", "ZZZ", "AAA", "XXX"]
    said = learned_report(others, tmp_path, each, *names)
    assert said["symbols"] == ["ZZZ", "AAA", "XXX"]
    assert said["bundle"]["taught_symbols"] == ["AAA", "BBB"]
    assert said["bundle"]["unseen_symbols"] == ["ZZZ", "XXX"]
    assert said["fills"] > 0
    remark = "taught on other symbols, AAA, BBB; it never saw ZZZ, XXX, whose indicators are scaled"
    assert said["bundle"]["remark"].startswith(remark)
    assert remark in (Path(said["run"]) / "equity.html").read_text(encoding="utf-8")
    assert remark in learned_line(others, tmp_path, each, *names).output


def test_its_own_symbols_by_name_change_nothing(bars: Path, each: Path, tmp_path: Path) -> None:
    own = learned_report(bars, tmp_path, each)
    named = learned_report(bars, tmp_path, each, "--symbols", "AAA,BBB")
    assert {**own, "run": ""} == {**named, "run": ""}
    assert "remark" not in own["bundle"]


def test_other_symbols_that_are_not_named_are_refused_with_how_to_ask(
    others: Path, each: Path, tmp_path: Path
) -> None:
    said = learned_refusal(others, tmp_path / "runs", each)
    assert "missing BBB; unknown XXX, YYY, ZZZ" in said
    assert name_options(said).endswith(
        "it trades other symbols, too, if you name them by --symbols"
    )
    settings = ["--set", "data.symbols=['XXX', 'YYY']"]
    assert "by `symbols`" in learned_refusal(others, tmp_path / "runs", each, *settings)


def test_lot_steps_of_new_symbols_are_asked_for(others: Path, each: Path, tmp_path: Path) -> None:
    own = load_policy(each).bundle
    limits = own.settings.limits.model_copy(update={"lot_step": {"AAA": 0.1, "BBB": 0.1}})
    stepped = replace(own, settings=own.settings.model_copy(update={"limits": limits}))
    stepped.save(tmp_path / "each")
    names = ["--symbols", "AAA", "XXX"]
    said = learned_refusal(others, tmp_path / "runs", tmp_path / "each", *names)
    assert "market.limits.lot_step is by symbol, and has no step for XXX" in said
    step = ["--set", "market.limits.lot_step.XXX=0.01"]
    run = Path(learned_report(others, tmp_path, tmp_path / "each", *names, *step)["run"])
    settings = json.loads((run / "settings.json").read_text())["settings"]
    assert settings["market"]["limits"]["lot_step"] == {"AAA": 0.1, "XXX": 0.01}


def test_the_settings_it_was_trained_with_may_be_given_again(
    bars: Path, best: Path, tmp_path: Path
) -> None:
    words = [
        "--set",
        "market.action=weights",
        "--set",
        "market.fill=next_open",
        "--set",
        "features.lookback=2",
    ]
    own, again = learned_report(bars, tmp_path, best), learned_report(bars, tmp_path, best, *words)
    assert own["metrics"] == again["metrics"]


def test_a_folder_without_a_policy_is_refused(bars: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    said = learned_refusal(bars, tmp_path / "runs", tmp_path / "empty")
    assert (
        "policy.json: there is no such file; give a folder that a training saved a policy in"
        in said
    )


def test_a_folder_that_is_not_there_is_refused(bars: Path, tmp_path: Path) -> None:
    said = learned_refusal(bars, tmp_path / "runs", tmp_path / "nowhere")
    assert "there is no policy" in said
    assert "or give the folder of a saved one" in said


def test_the_help_says_whose_settings_hold() -> None:
    shown = " ".join(
        CliRunner().invoke(main, ["backtest", "--help"], env={"COLUMNS": "200"}).output.split()
    )
    assert "the folder of a saved policy" in shown


def test_a_disk_that_fills_up_costs_no_figures_and_no_ledger(
    bars: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The picture is written last; what is lost is said, and the figures are printed all the
    same.
    """

    def full(path: Path, _: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr("flatout.evaluation.policy_backtest.write_picture", full)
    result = call(bars, tmp_path, "--json")
    assert json.loads(result.stdout)["metrics"]
    assert "equity.html: No space left on device; free some space" in str(result.exception)
    (run,) = tmp_path.iterdir()
    assert {path.name for path in run.iterdir()} >= {"ledger.csv", "metrics.json"}
