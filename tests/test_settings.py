"""Settings: which source wins, where a value came from, and what is written about a bad one."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from flatout.errors import SettingsError
from flatout.settings.loading import load_settings, resolve_settings
from flatout.settings.problems import known_keys
from flatout.settings.tables import SHORTS, FeeTier, Settings

CAPITAL = "FLATOUT__MARKET__CAPITAL"


def toml(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "flatout.toml"
    path.write_text(text, encoding="utf-8")
    return path


def refused(path: Path | None = None, *overrides: str, **environment: str) -> str:
    """What is written about these settings."""
    with pytest.raises(SettingsError) as caught:
        load_settings(path, overrides, environment)
    return str(caught.value)


def test_each_source_wins_over_the_one_before(tmp_path: Path) -> None:
    path = toml(tmp_path, "[market]\ncapital = 2.0\n")
    environment = {CAPITAL: "3", "PATH": "/bin"}
    override = ["market.capital=4"]
    assert load_settings(environment={}).settings.market.capital == 10_000
    assert load_settings(path, environment={}).settings.market.capital == 2
    assert load_settings(path, environment=environment).settings.market.capital == 3
    assert load_settings(path, override, environment).settings.market.capital == 4


def test_the_last_override_wins() -> None:
    resolved = load_settings(None, ["market.capital=4", "market.capital=5"], {})
    assert resolved.settings.market.capital == 5
    assert resolved.origin == {"market.capital": "--set market.capital=5"}


def test_a_table_is_merged_key_by_key(tmp_path: Path) -> None:
    path = toml(tmp_path, "[market]\ncapital = 2.0\n[market.costs]\nimpact = 0.25\n")
    settings = load_settings(path, ["market.costs.half_spread_bps=7"], {}).settings
    assert (settings.market.costs.impact, settings.market.costs.half_spread_bps) == (0.25, 7)
    assert (settings.market.capital, settings.market.fill) == (2, "next_open")


def test_the_process_environment_is_read_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CAPITAL, "123")
    assert load_settings().settings.market.capital == 123
    assert load_settings(environment={}).settings.market.capital == 10_000


def test_origin_names_the_source_of_every_value_that_is_no_default(tmp_path: Path) -> None:
    path = toml(
        tmp_path, "[market]\ncapital = 2.0\nfill = 'next_close'\n[features]\nlookback = 3\n"
    )
    resolved = load_settings(path, ["features.lookback=4"], {CAPITAL: "3"})
    assert resolved.origin == {
        "market.capital": CAPITAL,
        "market.fill": str(path),
        "features.lookback": "--set features.lookback=4",
    }


def test_origin_forgets_what_was_overridden(tmp_path: Path) -> None:
    """A number replaces a table of numbers: the table's keys are no longer in force."""
    path = toml(tmp_path, "[market.limits.lot_step]\nBTC = 0.001\n")
    resolved = load_settings(path, ["market.limits.lot_step=0.5"], {})
    assert resolved.settings.market.limits.lot_step == 0.5
    assert resolved.origin == {"market.limits.lot_step": "--set market.limits.lot_step=0.5"}


@pytest.mark.parametrize(
    ("text", "value"),
    [("same_close", "same_close"), ("'same_close'", "same_close"), (" same_close ", "same_close")],
)
def test_names_need_no_quotes(text: str, value: str) -> None:
    assert load_settings(None, [f"market.fill={text}"], {}).settings.market.fill == value


def test_lists_and_tables_are_written_as_in_toml() -> None:
    overrides = ["features.indicators=['rsi', 'cci']", "market.limits.lot_step={BTC = 0.001}"]
    settings = load_settings(None, overrides, {}).settings
    assert settings.features.indicators == ("rsi", "cci")
    assert settings.market.limits.lot_step == {"BTC": 0.001}


def test_settings_are_frozen() -> None:
    settings = Settings()
    with pytest.raises(ValidationError, match="frozen"):
        settings.market.capital = 5.0
    with pytest.raises(ValidationError, match="frozen"):
        settings.market = settings.market


def test_known_keys_are_dotted_and_reach_every_level() -> None:
    keys = known_keys(Settings)
    assert {
        "market",
        "market.capital",
        "market.costs.impact",
        "market.limits.ruin",
        "features.lookback",
    } <= set(keys)
    assert len(set(keys)) == len(keys)


# --- what is written about bad settings -----------------------------------------------------------


@pytest.mark.parametrize(
    ("override", "unknown", "nearest"),
    [
        ("market.captial=1", "market.captial", "market.capital"),
        ("capital=1", "capital", "market.capital"),
        ("market.costs.half_spread=1", "market.costs.half_spread", "market.costs.half_spread_bps"),
        ("market.limit.max_weight=1", "market.limit", "market.limits"),
        ("feature.lookback=1", "feature", "features"),
    ],
)
def test_an_unknown_key_names_the_nearest(override: str, unknown: str, nearest: str) -> None:
    message = refused(None, override)
    assert (
        message
        == f"{unknown} (from --set {override}): there is no such setting; did you mean {nearest}?"
    )


@pytest.mark.parametrize(
    ("given", "nested"),
    [
        ({"train.n_envs": 8}, '{"train": {"n_envs": 8}}'),
        ({"train.n_env": 8}, '{"train": {"n_envs": 8}}'),
        ({"market": {"limits.reserve": 0.1}}, '{"market": {"limits": {"reserve": 0.1}}}'),
    ],
)
def test_a_key_with_dots_is_answered_with_the_nested_form(
    given: dict[str, Any], nested: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        resolve_settings(given)
    assert str(caught.value).endswith(
        f" (from the caller): a name with dots is no key; tables lie within tables: write {nested}"
    )


@pytest.mark.parametrize("text", ["BTC, ETH", "BTC,ETH", "BTC,ETH,"])
def test_symbols_may_be_one_text(tmp_path: Path, text: str) -> None:
    path = toml(tmp_path, f'[data]\nsymbols = "{text}"\n')
    for resolved in (load_settings(path), resolve_settings({"data": {"symbols": text}})):
        assert resolved.settings.data.symbols == ("BTC", "ETH")
    assert load_settings(None, ["data.symbols=BTC"], {}).settings.data.symbols == ("BTC",)


@pytest.mark.parametrize("text", ["", " , "])
def test_a_text_without_a_symbol_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match=r"data\.symbols \(from the caller\)"):
        resolve_settings({"data": {"symbols": text}})


def test_a_key_like_no_other_gets_no_suggestion() -> None:
    assert refused(None, "qqqq=1") == "qqqq (from --set qqqq=1): there is no such setting"


def test_an_unknown_key_names_file_or_variable(tmp_path: Path) -> None:
    path = toml(tmp_path, "[market]\ncaptial = 2.0\n")
    assert refused(path).startswith(f"market.captial (from {path}): ")
    assert refused(FLATOUT__MARKET__FILLS="x").startswith(
        "market.fills (from FLATOUT__MARKET__FILLS): "
    )


def test_an_empty_unknown_table_names_its_file(tmp_path: Path) -> None:
    path = toml(tmp_path, "[markt]\n")
    assert str(path) in refused(path)


def test_an_unknown_key_of_a_fee_tier_names_the_tiers_keys() -> None:
    message = refused(None, "market.costs.tiers=[{volume = 0, taker = 1}]")
    assert "market.costs.tiers.0.taker " in message
    assert "taker_bps" in message


@pytest.mark.parametrize(
    ("override", "allowed"),
    [
        ("market.capital=-1", "greater than or equal to 0.000001"),
        ("market.capital=5e-324", "greater than or equal to 0.000001"),
        ("market.capital=much", "valid number"),
        ("market.capital=nan", "finite number"),
        ("market.fill=open", "'next_open', 'next_close' or 'same_close'"),
        ("market.action=buy", "'trade', 'weights', 'direction_amount' or 'discrete'"),
        (
            "market.order_sizes=[0.5, 0.5]",
            "give 1 to 10 sizes that differ from each other; given [0.5, 0.5]",
        ),
        ("market.order_sizes=[]", "give 1 to 10 sizes"),
        ("market.limits.reserve=1.5", "less than or equal to 1"),
        ("market.limits.trailing_stop=1", "less than 1"),
        ("market.limits.cooldown_bars=-1", "greater than or equal to 0"),
        ("market.episode_bars=1.5", "valid integer"),
        ("features.scaler=minmax", "'zscore', 'robust', 'quantile' or 'quantile_uniform'"),
    ],
)
def test_a_bad_value_names_key_source_value_and_what_is_allowed(
    override: str, allowed: str
) -> None:
    message = refused(None, override)
    key, _, given = override.partition("=")
    assert message.startswith(f"{key} (from --set {override}): ")
    assert allowed in message
    assert message.endswith((f"given {given}", f"given {given!r}"))


def test_a_bad_value_names_the_source_that_gave_it(tmp_path: Path) -> None:
    path = toml(tmp_path, "[market]\ncapital = 2.0\n")
    assert f"(from {CAPITAL})" in refused(path, **{CAPITAL: "-3"})
    assert "(from --set market.capital=-4)" in refused(path, "market.capital=-4", **{CAPITAL: "3"})


def test_a_value_in_place_of_a_table_names_the_source_that_gave_it(tmp_path: Path) -> None:
    path = toml(tmp_path, "[market]\ncapital = 2.0\n")
    message = refused(path, "market=5")
    assert message.startswith("market (from --set market=5): ")


def test_a_value_in_place_of_a_table_is_explained_without_class_names() -> None:
    assert "MarketSettings" not in refused(None, "market=5")


@pytest.mark.parametrize("value", ["[1]", "{BTC = -1}", "-1"])
def test_a_bad_lot_step_is_named_by_its_key(value: str) -> None:
    """The step is a number or a table; the message must not speak of the type checker's
    branches.
    """
    message = refused(None, f"market.limits.lot_step={value}")
    assert all(line.startswith("market.limits.lot_step") for line in message.splitlines())
    assert f"(from --set market.limits.lot_step={value})" in message
    assert "constrained-float" not in message
    assert ".dict" not in message


@pytest.mark.parametrize("value", ["true", "false"])
def test_true_is_no_number(value: str) -> None:
    assert "market.costs.impact" in refused(None, f"market.costs.impact={value}")


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    path = toml(tmp_path, "[market]\ncapital = -2.0\nfils = 1\n[features]\nlookback = 0\n")
    lines = refused(path).splitlines()
    assert [line.split()[0] for line in lines] == [
        "market.capital",
        "market.fils",
        "features.lookback",
    ]


@pytest.mark.parametrize("volumes", [(), (5.0,), (0.0, 10.0, 10.0), (0.0, 10.0, 5.0)])
def test_fee_tiers_start_at_zero_and_ascend(volumes: tuple[float, ...]) -> None:
    tiers = ", ".join(f"{{volume = {volume}}}" for volume in volumes)
    message = refused(None, f"market.costs.tiers=[{tiers}]")
    assert "must start at 0 and ascend" in message
    assert str(list(volumes)) in message


@pytest.mark.parametrize(
    "tables",
    [
        {"market": {"action": "trade"}},
        {"market": {"limits": {"max_short_weight": 0.5}}},
        {"search": {"space": {"market.limits.max_short_weight": {"low": 0.0, "high": 1.0}}}},
    ],
)
def test_shares_are_refused_where_they_are_no_weights(tables: dict[str, Any]) -> None:
    train = {"train": {"distribution": "softmax"}}
    assert Settings.model_validate(train).train.distribution == "softmax"
    with pytest.raises(ValueError, match=r'"softmax" (is for market.action "weights"|allows)'):
        Settings.model_validate(train | tables)


def test_ascending_tiers_are_taken() -> None:
    tiers = "market.costs.tiers=[{volume = 0}, {volume = 10, taker_bps = 5}]"
    given = load_settings(None, [tiers], {}).settings.market.costs.tiers
    assert given == (FeeTier(volume=0), FeeTier(volume=10, taker_bps=5))


def test_broken_toml_says_where(tmp_path: Path) -> None:
    path = toml(tmp_path, "[market]\ncapital = \n")
    message = refused(path)
    assert message.startswith(f"{path}: not valid TOML: ")
    assert "line 2" in message


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "flatout.toml"
    path.write_bytes(b"\xff\xfe\x00")
    assert refused(path).startswith(f"{path}: not valid TOML: ")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "nowhere.toml"
    assert refused(path) == f"{path}: there is no such file; give a TOML file"


def test_a_folder_is_no_settings_file(tmp_path: Path) -> None:
    assert str(tmp_path) in refused(tmp_path)


def test_an_override_without_a_value_says_how_to_write_one() -> None:
    message = refused(None, "market.capital")
    assert "'market.capital' has no '='" in message
    assert "write it as market.capital=5000" in message


def test_of_many_unknown_keys_ten_are_named_and_the_others_counted(tmp_path: Path) -> None:
    """Looking for the nearest key of each would take minutes."""
    path = toml(tmp_path, "".join(f"k{number} = 1\n" for number in range(60_000)))
    message = refused(path).splitlines()
    assert len(message) == 11
    assert message[0] == f"k0 (from {path}): there is no such setting"
    assert message[-1] == "and 59,990 more"


@pytest.mark.parametrize(
    "text",
    [
        "a." * 400_000 + "a = 1",
        "[" + "a." * 10_000 + "a]",
        "x = " + "[" * 100_000,
        "x = " + "{a." * 20_000,
        "x = 1" + "0" * 5000,
        "x = {" + "a." * 10_000 + "a = 1}",
    ],
    ids=["dotted", "table", "lists", "tables", "digits", "inline"],
)
def test_deep_nesting_and_endless_numbers_are_refused_with_the_file(
    tmp_path: Path, text: str
) -> None:
    path = toml(tmp_path, text)
    message = refused(path)
    assert message.startswith(f"{path}: not valid TOML: ")
    assert len(message) < 500


@pytest.mark.parametrize(
    "value", ["[" * 100_000, "9" * 5000, "0x" + "f" * 100_000, "x" * 3_000_000, "{a." * 10_000]
)
@pytest.mark.parametrize("by_environment", [True, False])
def test_values_of_any_length_and_depth_are_refused_in_a_few_words(
    value: str, by_environment: bool
) -> None:
    message = (
        refused(**{CAPITAL: value}) if by_environment else refused(None, f"market.capital={value}")
    )
    assert message.startswith("market.capital (from ")
    assert len(message) < 1000


def test_a_name_of_ten_thousand_parts_is_refused() -> None:
    for message in (
        refused(None, "a." * 10_000 + "a=1"),
        refused(**{"FLATOUT__" + "A__" * 10_000 + "A": "1"}),
    ):
        assert "a name of 10,001 parts; no setting has more than four" in message
        assert len(message) < 500


def test_a_text_of_several_lines_does_not_smuggle_keys_in() -> None:
    assert "given '5\\ncapital = 7'" in refused(None, "market.episode_bars=5\ncapital = 7")


@pytest.mark.parametrize(
    "override",
    [
        "market.episode_bars=100000000000000000000",
        "train.epochs=99999999999999",
        "search.seeds=2147483648",
    ],
)
def test_whole_numbers_end_where_the_programs_counters_end(override: str) -> None:
    assert "Input should be less than or equal to 2147483647; given " in refused(None, override)


@pytest.mark.parametrize("value", ["1e39", "-1e39", "nan", "inf", "-inf"])
def test_numbers_end_where_single_precision_ends(value: str) -> None:
    assert refused(None, f"market.reward.excess={value}").startswith(
        "market.reward.excess (from --set "
    )


def test_a_quoted_key_with_dots_in_it_is_no_other_key(tmp_path: Path) -> None:
    path = toml(tmp_path, '"market.capital" = 1\n[market]\ncapital = 2\n')
    assert "market.capital" in refused(path, "market.capital.x=1", "market.capital=3")


def test_a_pipe_is_no_settings_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "flatout.toml")
    assert "is a pipe, a socket or a device, where a file is wanted" in refused(
        tmp_path / "flatout.toml"
    )


def test_every_form_of_settings_stands_over_what_a_policy_brings(tmp_path: Path) -> None:
    """`Resolved`, as `load_settings` gives it, once threw the policy's own market away."""
    own = {"market": {"capital": 7.0, "limits": {"reserve": 0.2, "trailing_stop": 0.1}}}
    path = toml(tmp_path, "[data]\nbars = 'a.csv'\n[market.limits]\ntrailing_stop = 'off'\n")
    tables = {"data": {"bars": "a.csv"}, "market": {"limits": {"trailing_stop": "off"}}}
    forms = (path, tables, Settings.model_validate(tables), load_settings(path, environment={}))
    first, *others = [resolve_settings(form, base=own) for form in forms]
    assert first.settings.market.capital == 7
    assert first.settings.market.limits.reserve == 0.2
    assert first.settings.market.limits.trailing_stop is None
    assert [one.settings for one in others] == [first.settings] * 3
    assert others[-1].origin == first.origin


# --- what learns where it is left open


@pytest.mark.parametrize(
    ("tables", "kind"),
    [
        ({}, ("pathwise", "per_asset", "softmax")),
        ({"market": {"action": "trade"}}, ("pathwise", "per_asset", "gaussian")),
        (
            {"market": {"limits": {"max_short_weight": 0.5}}},
            ("pathwise", "per_asset", "gaussian"),
        ),
        (
            {"search": {"space": {SHORTS: {"low": 0.0, "high": 0.5}}}},
            ("pathwise", "per_asset", "gaussian"),
        ),
        ({"market": {"action": "discrete"}}, ("ppo", "flat", "gaussian")),
        ({"market": {"action": "direction_amount"}}, ("ppo", "flat", "gaussian")),
        ({"train": {"clip": 0.3}}, ("ppo", "flat", "gaussian")),
        (
            {"search": {"space": {"train.clip": {"low": 0.1, "high": 0.3}}}},
            ("ppo", "flat", "gaussian"),
        ),
        ({"train": {"network": "flat"}}, ("pathwise", "flat", "softmax")),
        ({"train": {"algorithm": "ppo"}}, ("ppo", "flat", "gaussian")),
    ],
)
def test_what_learns_follows_from_the_market(tables: dict[str, Any], kind: Any) -> None:
    """And says so again when it is read back, or "auto" is written out."""
    settings = Settings.model_validate(tables)
    assert settings.train.kind == kind
    assert Settings.model_validate(settings.model_dump()) == settings
    auto = {"algorithm": "auto", "network": "auto", "distribution": "auto"}
    spelled = {**tables, "train": {**auto, **tables.get("train", {})}}
    assert Settings.model_validate(spelled) == settings


def test_a_kind_that_was_left_open_follows_another_market() -> None:
    """Of settings that were made for one market, and are then given with another."""
    train = Settings().train
    assert train.kind.distribution == "softmax"
    assert Settings(train=train, market={"action": "discrete"}).train.kind.algorithm == "ppo"
    trade = {"market": {"action": "trade"}}
    given = Settings(train={"algorithm": "auto", "distribution": "auto"})
    assert resolve_settings(given, base=trade).settings.train.kind.distribution == "gaussian"


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        (
            {"train": {"algorithm": "pathwise", "clip": 0.5}},
            "train.clip is 0.5, which pathwise does not have: leave it out, or choose "
            'train.algorithm = "ppo"',
        ),
        ({"train": {"algorithm": "pathwise", "minibatches": 7}}, "train.minibatches is 7, which"),
        (
            {"train": {"clip": 0.3, "weight_decay": 0.9}},
            "train.weight_decay is 0.9, which ppo does not have: leave it out, or choose "
            'train.algorithm = "pathwise"',
        ),
        (
            {
                "market": {"action": "discrete"},
                "search": {"space": {"train.action_noise": {"low": 0.1, "high": 0.2}}},
            },
            "search.space names train.action_noise, which ppo does not have",
        ),
    ],
)
def test_numbers_that_nobody_would_read_are_refused(tables: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(said)):
        resolve_settings(tables)
