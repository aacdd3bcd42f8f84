"""`flatout.train`: what the command takes, from Python, with the same result."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import flatout
from flatout.bars.calendars import follow_calendar
from flatout.bars.panel import PRICES
from flatout.bars.source import select_symbols
from flatout.bars.synthetic import PlantedSignal, RandomWalk, built_in_market
from flatout.bars.write import write_bars
from flatout.cli.main import main
from flatout.errors import BarsError, BundleError, FlatoutError, RulesError, RunError, SettingsError
from flatout.policies.bundle import Bundle
from flatout.settings.loading import load_settings, resolve_settings
from flatout.training.metrics_file import Row
from flatout.training.prepare import PreparedTraining, start_run
from flatout.training.result import TrainingResult
from flatout.training.train import prepare_new, prepare_resumed, run_training
from session_panels import panel_at, session_times

pytestmark = pytest.mark.long  # workers that compile

WALK = RandomWalk(n_bars=300, seed=2, symbols=("AAA", "BBB")).panel()
TINY: dict[str, Any] = {
    "train": {"n_envs": 4, "n_steps": 16, "hidden": [8], "timesteps": 128},
    "features": {"indicators": ["return_1"]},
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TrainingResult:
    out = tmp_path_factory.mktemp("runs")
    return flatout.train(
        WALK, symbols=["BBB", "AAA"], settings=TINY, evaluations=1, workers=1, out=out,
        progress=False,
    )  # fmt: skip


def test_the_result_says_what_came_out_and_where(trained: Any) -> None:
    assert list(trained.agents) == ["BBB", "AAA"]
    assert trained.agents["AAA"].policies == ("AAA-seed0",)
    assert {"AAA-seed0", "cash", "equal_weight"} <= set(trained.agents["AAA"].metrics)
    assert json.loads((trained.folder / "report.json").read_text()) == trained.facts()
    assert (trained.folder / "metrics.jsonl").exists()


def test_the_result_is_one_line(trained: Any) -> None:
    figures = [trained.agents[name].metrics[f"{name}-seed0"] for name in ("BBB", "AAA")]
    bbb, aaa = (figure["total_return"] for figure in figures)
    assert repr(trained) == (
        f"TrainingResult('{trained.folder}': returns on held-out bars "
        f"BBB-seed0 {bbb:+.1%}, AAA-seed0 {aaa:+.1%})"
    )


def test_a_policy_predicts_and_backtests(trained: Any) -> None:
    policy = trained.load_policy("AAA-seed0", "last")
    size = policy.bundle.observation_size
    assert policy.predict([0.0] * size).shape == (2,)
    assert policy.predict(np.zeros((5, size))).shape == (5, 2)
    result = policy.backtest(WALK, symbols=["AAA"], progress=False)
    assert set(result.metrics) >= {"last", "cash"}
    run = result.write(trained.folder.parent)
    assert {path.name for path in run.iterdir()} >= {"ledger.csv", "metrics.json", "equity.html"}
    with pytest.raises(RunError, match="there are BBB-seed0, AAA-seed0"):
        trained.load_policy("CCC")


def test_agents_that_read_larger_bars_learn_and_backtest(tmp_path: Path) -> None:
    settings = TINY | {"features": {"indicators": ["1d:volatility", "return_1", "4h:rsi"]}}
    panel = RandomWalk(n_bars=1200, seed=2, symbols=("AAA", "BBB")).panel()
    given = {"settings": settings, "evaluations": 1, "workers": 1, "progress": False}
    result = flatout.train(panel, out=tmp_path, **given)
    [(name, _)] = result.agents.items()
    policy = result.load_policy(f"{name}-seed0", "last")
    assert policy.bundle.recipe.names == ("1d:volatility", "return_1", "4h:rsi")
    backtested = policy.backtest(panel, progress=False)
    assert backtested.first == (150 + 2) * 4 - 2
    assert np.isfinite(backtested.metrics["last"]["total_return"])


@pytest.mark.long
@pytest.mark.parametrize("engine", ["jax", "torch"])
def test_agents_learn_along_the_path_with_one_network_for_all_assets(
    tmp_path: Path, engine: str
) -> None:
    """From the door to a backtest: a planted signal is earned from in 30,000 steps."""
    panel = PlantedSignal(n_bars=3000, seed=4, symbols=("AAA", "BBB"), strength_bps=60.0).panel()
    settings = {
        "features": {"indicators": ["return_1", "extra:signal"]},
        "train": {
            "algorithm": "pathwise", "network": "per_asset", "distribution": "softmax",
            "hidden": [16, 16], "n_envs": 16, "timesteps": 30_000, "engine": engine,
        },
    }  # fmt: skip
    given = {"settings": settings, "evaluations": 2, "workers": 1, "progress": False}
    result = flatout.train(panel, out=tmp_path, **given)
    [(name, agent)] = result.agents.items()
    policy = result.load_policy(f"{name}-seed0", "last")
    assert policy.bundle.kind == "per_asset" and policy.bundle.distribution == "softmax"
    again = policy.backtest(panel, progress=False)
    assert again.metrics["last"]["sharpe"] > 5
    figures = agent.metrics[f"{name}-seed0"]
    assert figures["sharpe"] > 5 > agent.metrics["equal_weight"]["sharpe"]
    rows = (result.folder / "metrics.jsonl").read_text()
    assert '"skipped": 0.0' in rows and '"entropy"' not in rows


def test_a_run_on_bars_in_memory_goes_on_without_them(trained: Any) -> None:
    again = flatout.train(resume=trained.folder, progress=False)
    assert again.agents == trained.agents


def test_policies_that_could_not_be_saved_are_not_listed(
    trained: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, usual = tmp_path / "run", Bundle.save
    shutil.copytree(trained.folder, run, ignore=shutil.ignore_patterns("*-seed0"))

    def refuse(bundle: Bundle, folder: Path) -> None:
        if folder.parent.name == "BBB-seed0" or folder.name == "last":
            raise BundleError("weights are not numbers")
        usual(bundle, folder)

    monkeypatch.setattr(Bundle, "save", refuse)
    with pytest.warns(UserWarning, match="is not saved: weights are not numbers") as told:
        result = flatout.train(resume=run, progress=False)
    assert len(told) == len(result.warnings) == 3
    assert result.bundles == {"BBB-seed0": (), "AAA-seed0": ("AAA-seed0/best",)}
    assert json.loads((run / "report.json").read_text())["bundles"]["BBB-seed0"] == []
    assert result.load_policy("AAA-seed0").name == "best"
    with pytest.raises(RunError, match="no policy 'best' of BBB-seed0; saved are: none"):
        result.load_policy()
    told_again = CliRunner().invoke(main, ["train", "--resume", str(run)], catch_exceptions=False)
    assert f"--policy {run}/AAA-seed0/best" in told_again.stdout


def test_a_panel_in_an_order_of_its_own_goes_on(tmp_path: Path) -> None:
    extras = {"mood": WALK.close}  # which no feature wants
    panel = replace(select_symbols(WALK, ["BBB", "AAA"]), extras=extras)
    prepared = prepare_new(resolve_settings(TINY), panel, workers=1)
    again = prepare_resumed(start_run(prepared, tmp_path))
    assert again.request.fingerprints == prepared.request.fingerprints


def test_a_run_goes_on_with_the_calendar_of_its_bars(tmp_path: Path) -> None:
    times = session_times("XLON", 3600, "2023-01-02", "2023-06-30")
    panel = follow_calendar(panel_at(times, 3600), "XLON")
    prepared = prepare_new(resolve_settings(TINY), panel, workers=1)
    assert prepared.request.calendar == "XLON"
    again = prepare_resumed(start_run(prepared, tmp_path))
    for run in (prepared, again):
        [agent] = run.made.agents
        assert agent.market.panel.trading_year == panel.trading_year


def test_the_command_and_the_function_train_the_same(trained: Any, tmp_path: Path) -> None:
    write_bars(WALK, tmp_path / "walk.parquet")
    settings = tmp_path / "flatout.toml"
    settings.write_text(
        '[data]\nbars = "walk.parquet"\n[features]\nindicators = ["return_1"]\n[train]\n'
        "n_envs = 4\nn_steps = 16\nhidden = [8]\ntimesteps = 128\n"
    )
    words = ["train", "-c", str(settings), "--symbols", "BBB,AAA", "--evaluations", "1"]
    words += ["--workers", "1", "--out", str(tmp_path / "runs"), "--json"]
    told = CliRunner().invoke(main, words, catch_exceptions=False)
    assert told.exit_code == 0
    assert json.loads(told.stdout)["agents"] == trained.facts()["agents"]


def prepared(**changes: Any) -> PreparedTraining:
    given = {"settings": TINY, "bars": WALK} | changes
    settings = given.pop("settings")
    return prepare_new(resolve_settings(settings), given.pop("bars"), workers=1, **given)


def test_bars_of_the_settings_are_taken(tmp_path: Path) -> None:
    """`train -c` once took the built-in random walk whatever the file said."""
    write_bars(WALK, tmp_path / "walk.parquet")
    (tmp_path / "flatout.toml").write_text(
        '[data]\nbars = "walk.parquet"\nsymbols = ["BBB"]\n[features]\nindicators = ["return_1"]'
    )
    made = prepare_new(load_settings(tmp_path / "flatout.toml"), workers=1)
    [agent] = made.made.agents
    assert (agent.name, agent.market.panel.symbols) == ("portfolio", ("BBB",))


def test_without_bars_it_is_the_built_in_market() -> None:
    made = prepared(bars=None, seed=3)
    assert made.made.agents[0].market.panel.fingerprint == built_in_market(seed=3).fingerprint


@pytest.mark.parametrize(
    ("changes", "timesteps", "held_out"),
    [({}, 500_000, 0.2), ({"train": {"timesteps": 999}, "folds": {"hold_out": 0.3}}, 999, 0.3)],
)
def test_the_budget_has_one_home(changes: dict[str, Any], timesteps: int, held_out: float) -> None:
    settings = {"features": TINY["features"], **changes}
    request = prepared(settings=settings).request
    assert (request.timesteps, request.held_out) == (timesteps, held_out)
    agent = prepared(settings=settings).made.agents[0]
    assert agent.cut == WALK.n_bars - round(held_out * WALK.n_bars)


def test_old_names_of_the_budget_are_read() -> None:
    settings = {**TINY, "train": {"n_envs": 4}, "search": {"timesteps": 777, "seeds": 2}}
    request = prepared(settings=settings).request
    assert (request.timesteps, request.seeds) == (777, 2)


def test_indicators_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from flatout.features import indicators

    counted: list[str] = []
    usual = indicators.compute_indicators

    def count(panel: Any, names: Any) -> Any:
        counted.append(panel.symbols[0])
        return usual(panel, names)

    for home in ("flatout.features.indicators", "flatout.features.recipe.known"):
        monkeypatch.setattr(f"{home}.compute_indicators", count)
    prepared(symbols=["AAA", "BBB"])
    assert counted == ["AAA", "BBB"]


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(RulesError, match=r"folds.hold_out is 0; a training holds out 0.01 to 0.9"):
        prepared(settings={**TINY, "folds": {"hold_out": 0.0}})
    with pytest.raises(RulesError, match="AAA twice: name each once"):
        prepared(symbols=["AAA", "AAA"])
    with pytest.raises(BarsError, match="the bars hold AAA, BBB"):
        prepared(symbols=["CCC"])
    with pytest.raises(SettingsError, match=r"did you mean train\.gamma"):
        prepared(settings={"train": {"gama": 0.9}})
    with pytest.raises(SettingsError, match="settings are of type int: give a path, a dict"):
        prepared(settings=5)
    with pytest.raises(BarsError, match="bars are of type set"):
        prepared(bars={1, 2})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"bars": ""}, "bars are an empty text"),
        ({"symbols": 5}, "symbols are 5: give names"),
        ({"symbols": [1]}, "symbols are [1]: give names"),
        ({"bar": 4}, "bar is 4: give a size as a text"),
        ({"seed": -1}, "seed is -1: give a whole number"),
        ({"evaluations": 0}, "evaluations"),
        ({"evaluations": -3}, "evaluations"),
        ({"workers": -1}, "workers: Input should be greater than or equal to 1, given -1"),
        ({"workers": "2"}, "workers"),
    ],
)
def test_arguments_are_refused_in_a_sentence(changes: dict[str, Any], said: str) -> None:
    given = {"bars": WALK, "workers": 1} | changes
    with pytest.raises(FlatoutError) as error:
        prepare_new(resolve_settings(TINY), given.pop("bars"), **given)
    assert said in str(error.value)


def test_one_symbol_without_a_column_is_trained_and_kept(tmp_path: Path) -> None:
    times = pd.date_range("2024-01-01", periods=300, freq="h", tz="America/New_York", name="Foo")
    panel = RandomWalk(n_bars=300, seed=1, symbols=("BTC",)).panel()
    columns = {name: getattr(panel, name)[:, 0] for name in (*PRICES, "volume")}
    made = prepared(bars=pd.DataFrame(columns, times), symbols=["BTC"])
    run = start_run(made, tmp_path)
    again = prepare_resumed(run)
    assert again.request.fingerprints == made.request.fingerprints


def test_bars_that_cannot_be_kept_leave_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = prepared()
    monkeypatch.setattr("flatout.bars.source.write_bars", lambda panel, path: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        start_run(made, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"timesteps": 5, "symbols": ["AAA"]}, "symbols, timesteps"),
        ({"evaluations": 5, "out": "x"}, "evaluations, out"),
        ({"seeds": 0}, "seeds"),
        ({"bars": WALK, "portfolio": True, "workers": 0}, "bars, portfolio, workers"),
        ({"settings": {}, "hold_out": 0.0, "seed": 1}, "settings, hold_out, seed"),
    ],
)
def test_what_a_resumed_run_cannot_follow_is_refused(given: dict[str, Any], named: str) -> None:
    with pytest.raises(RunError, match=f"as it was begun: leave out {named}, or start a new run"):
        flatout.train(resume="nowhere", **given)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("--seeds 3", "--seeds"),
        ("--evaluations 20 --out runs", "--evaluations, --out"),  # also what is the default
        ("--seed 0 -c x.toml --plan --json --device cpu", "--config, --seed"),
        ("--symbols A B --held-out 0.2 --set train.seeds=2", "--symbols, --hold-out, --set"),
    ],
)
def test_so_are_options(words: str, named: str) -> None:
    refused = CliRunner().invoke(main, ["train", "--resume", "nowhere", *words.split()])
    assert f"leave out {named}, or start" in str(refused.exception)


def test_an_option_stands_over_an_old_name_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "old.toml").write_text("[search]\ntimesteps = 2000\nseeds = 2\n")
    resolved = load_settings(tmp_path / "old.toml", ["train.timesteps=500"])
    assert (resolved.settings.train.timesteps, resolved.settings.train.seeds) == (500, 2)
    resolved = load_settings(tmp_path / "old.toml", ["search.timesteps=700"])
    assert resolved.settings.train.timesteps == 700


def test_settings_of_a_backtest_may_be_an_object(trained: Any) -> None:
    policy = trained.load_policy("AAA-seed0")
    dear = flatout.Settings.model_validate({"market": {"costs": {"half_spread_bps": 50}}})
    for settings in (flatout.Settings(), dear):
        result = policy.backtest(WALK, symbols="AAA", settings=settings, progress=False)
        found = result.resolved.settings
        assert found.features.indicators == ("return_1",)
        assert found.market.costs.half_spread_bps == settings.market.costs.half_spread_bps


def test_an_interruption_saves_the_policies_and_says_how_to_go_on(tmp_path: Path) -> None:
    made = prepared(settings={**TINY, "train": {**TINY["train"], "timesteps": 64 * 6}})
    made = replace(made, made=made.made.with_updates(6))
    run = start_run(made, tmp_path)

    def interrupt(rows: list[Row]) -> None:
        if rows and rows[-1].updates >= 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        run_training(made, run, interrupt, quiet=True)
    assert stopped.value.__notes__[-1] == f"go on with: flatout.train(resume={str(run)!r})"
    assert flatout.load_policy(run / "portfolio-seed0" / "last").bundle.notes["updates"] >= 2
    assert prepare_resumed(run).request.timesteps == 64 * 6
