"""Damaged settings: `flatout.toml`, `--set` and the environment, up to the folds and rules that
they ask for.
"""

import json
import os
import random
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from damage.commands import run_command
from damage.harness import SilentlyWrong
from damage.mutations import damage_bytes
from flatout.bars.panel import Panel
from flatout.bars.synthetic import RandomWalk
from flatout.errors import FlatoutError
from flatout.evaluation.study_folds import make_study_folds
from flatout.market.market import make_rules
from flatout.search.market_study import check_gates, find_widest_network
from flatout.search.space import check_space
from flatout.settings.loading import load_settings

COUNT = 500
FILE = """
[data]
symbols = ["AAA", "BBB"]
[market]
capital = 5000.0
fill = "next_open"
episode_bars = 64
[market.costs]
impact = 0.25
tiers = [
  { volume = 0, maker_bps = 15, taker_bps = 25 },
  { volume = 100000, maker_bps = 12, taker_bps = 22 },
]
[market.limits]
lot_step = { AAA = 0.001, BBB = 0.01 }
trailing_stop = 0.1
max_held_bars = "off"
[market.reward]
excess = 0.5
[features]
indicators = ["return_1", "rsi"]
lookback = 2
scaler = "zscore"
[train]
hidden = [16, 16]
epochs = 3
learning_rate = 1e-3
normalise_reward = true
[folds]
kind = "cpcv"
groups = 4
hold_out = 0.2
[search]
trials = 12
rungs = [0.5, 1.0]
[search.space]
"train.gamma" = { low = 0.9, high = 0.99 }
"train.epochs" = { low = 1, high = 8, whole = true }
"train.hidden" = { choices = [[8, 8], [16, 16]] }
[gates]
pbo = "off"
beats = ["cash"]
"""
VALUES = (
    "1", "-1", "0", "0.5", "1e39", "1e308", "1e999", "nan", "inf", "-inf", "99999999999999",
    "1" + "0" * 20, "9" * 5000,
    "0x" + "f" * 5000, "true", '""', '"off"', "off", "[]", "{}", "[[1]]", "[" * 500, "{a=" * 500,
    "x" * 100_000,
    '"../../up"', "1979-05-27", "07:32:00", ("[1, 'two']"), "{low = 1, high = 2}", "'\\ud800'",
                                            "\x1b[31m", "[red]",
    "5\nx = 1", "2147483647", "2147483648", '{choices = [1]}', '{low = 0, high = 1, log = true}',
)  # fmt: skip
EXTREMES = (
    "0",
    "1",
    "2",
    "3",
    "7",
    "1000",
    "1000000",
    "2147483647",
    "1e-300",
    "1e-9",
    "0.001",
    "0.999999",
    "1.0",
    "3e38",
)
NUMBERS = sorted(
    f"{table}.{key}"
    for table, keys in {
        "market": "capital episode_bars",
        "market.costs": "maker_share half_spread_bps impact borrow_bps_per_year",
        "market.limits": "min_notional lot_step max_weight max_short_weight gross_limit reserve "
        "participation trailing_stop cooldown_bars max_held_bars forced_share "
        "trade_size ruin",
        "market.reward": (
            "log_return excess differential_sharpe drawdown turnover concentration "
            "scale sharpe_bars concentration_above"
        ),
        "features": "lookback",
        "train": (
            "n_envs n_steps minibatches epochs learning_rate gamma clip value_clip "
            "max_grad_norm log_std"
        ),
        "folds": "groups test_groups train_groups purge_bars embargo_bars hold_out",
        "search": "trials timesteps seeds seed batch finalists final_seeds",
    }.items()
    for key in keys.split()
)


def prepare(folder: Path) -> None:
    """The file."""
    (folder / "flatout.toml").write_text(FILE)
    for name in [name for name in os.environ if name.startswith("FLATOUT__")]:
        del os.environ[name]
    look_at(folder / "flatout.toml", [], {})


@cache
def panel() -> Panel:
    return RandomWalk(n_bars=2000, symbols=("AAA", "BBB")).panel()


def keys_in(table: Any, prefix: str = "") -> Iterator[str]:
    """The dotted names of a file's values and tables."""
    for key, value in table.items():
        yield f"{prefix}{key}"
        if isinstance(value, dict):
            yield from keys_in(value, f"{prefix}{key}.")


def damage(number: int, originals: Path, folder: Path) -> str:
    """One source is damaged: bytes of the file, a value of it, many keys, an override, or the
    environment.
    """
    rng = random.Random(number)
    content = (originals / "flatout.toml").read_bytes()
    keys = sorted(keys_in(tomllib.loads(content.decode())))
    key, value = rng.choice(keys), rng.choice(VALUES)
    kind = rng.choice(
        ("extremes",) * 6 + ("bytes", "line", "line", "keys", "set", "set", "environment", "file")
    )
    given: dict[str, Any] = {"set": [], "environment": {}}
    said = f"{kind}: {key} = {value[:40]!r}"
    if kind == "bytes":
        content, said = damage_bytes(content, rng)
    elif kind == "line":
        lines = content.decode().splitlines()
        at = rng.choice([n for n, line in enumerate(lines) if " = " in line])
        lines[at] = f"{lines[at].partition(' = ')[0]} = {value}"
        content, said = (
            "\n".join(lines).encode("utf-8", "surrogatepass"),
            f"line {at + 1}: {lines[at][:60]!r}",
        )
    elif kind == "keys":
        many = rng.choice((1, 20, 70_000))
        content, said = (
            b"".join(b"k%d = 1\n" % k for k in range(many)) + content,
            f"{many} unknown keys",
        )
    elif kind == "extremes":
        chosen = rng.sample(NUMBERS, rng.choice((1, 1, 2, 4)))
        given["set"] = [f"{name}={rng.choice(EXTREMES)}" for name in chosen]
        said = ", ".join(given["set"])
    elif kind == "set":
        name = rng.choice(
            (key, key, f"{key}.x", f"{key}x", "a." * 10_000 + "a", "", ".", key.upper(), "=" + key)
        )
        given["set"] = [f"{name}={value}"] if rng.random() < 0.95 else [name]
        said = f"set: {given['set'][0][:60]!r}"
    elif kind == "environment":
        name = rng.choice((key, key, f"{key}.x", "a." * 1000 + "a", "")).replace(".", "__").upper()
        given["environment"] = {f"FLATOUT__{name}": value}
    (folder / "flatout.toml").write_bytes(content)
    (folder / "given.json").write_text(json.dumps(given))
    if kind == "file":
        said = replace_file(folder / "flatout.toml", rng)
    return said


def replace_file(path: Path, rng: random.Random) -> str:
    """Something else in the file's place."""
    kind = rng.choice(("gone", "folder", "pipe", "device", "loop", "hole"))
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind in ("device", "loop"):
        path.symlink_to("/dev/zero" if kind == "device" else path.name)
    elif kind == "hole":
        with path.open("wb") as file:
            file.truncate(20 << 30)
    return kind


def attempt(folder: Path) -> str:
    """Show them, and make of them what a study begins with."""
    given = json.loads((folder / "given.json").read_text())
    path = folder / "flatout.toml"
    try:
        look_at(path, given["set"], given["environment"])
    finally:
        show(path, given)
    return "read"


def show(path: Path, given: dict[str, Any]) -> None:
    """`flatout config show`."""
    os.environ.update(
        {name: text for name, text in given["environment"].items() if storable(name, text)}
    )
    try:
        words = [word for text in given["set"] for word in ("--set", text)]
        run_command("config", "show", "--origin", "--config", path, *words)
    except FlatoutError:
        pass  # which `look_at` has said before
    finally:
        for name in given["environment"]:
            os.environ.pop(name, None)


def storable(name: str, text: str) -> bool:
    """Whether a system has such variables."""
    try:
        os.fsencode(f"{name}={text}")
    except UnicodeEncodeError:
        return False
    return "\0" not in f"{name}{text}"


def look_at(path: Path, overrides: list[str], environment: dict[str, str]) -> None:
    """All that is derived from settings before anything is trained."""
    settings = load_settings(path, overrides, environment).settings
    if not overrides and not environment:
        check_taken(tomllib.loads(path.read_text()), settings.model_dump(mode="json"))
    check_space(settings.search.space, settings)
    check_gates(settings)
    make_study_folds(panel(), settings)
    make_rules(settings.market, panel())
    find_widest_network(settings)


def check_taken(wanted: Any, found: Any, name: str = "") -> None:
    """Every value of the file is in force."""
    if isinstance(wanted, dict):
        for key, value in wanted.items():
            check_taken(value, found[key], f"{name}.{key}")
    elif isinstance(wanted, list):
        for value, one in zip(wanted, found, strict=True):
            check_taken(value, one, name)
    elif wanted != found and not (wanted == "off" and found is None):
        raise SilentlyWrong(f"{name} is {found!r}, and the file says {wanted!r}")
