"""`Recipe`: which features the agent sees. `FittedRecipe`: the same with its scaler and its
symbols.

A fitted recipe travels with the policy. It turns bars into features in training, testing and live
alike, and refuses bars that mean something else: other symbols, another order, another bar size. On
disk it is `recipe.json` beside `recipe-<hash>.safetensors`. This file knows nothing about accounts,
actions or networks, and it does not stack the lookback: whoever builds observations gathers rows t,
t-1, ...
"""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict

from flatout.arrays import NumpyArray
from flatout.bars.bar_size import bar_name
from flatout.bars.panel import EXTRA, FloatArray, Panel
from flatout.errors import RecipeError
from flatout.features import indicators as known
from flatout.features.coarse_bars import check_coarse_size, name_of_calendar
from flatout.features.names import group_by_bar
from flatout.features.scalers import (
    MOST_STATISTICS,
    Rows,
    Scaler,
    check_statistics,
    find_method,
    fit_scaler,
    scale,
)
from flatout.features.training_rows import TrainingRows, row_numbers
from flatout.foreign import Sha256, parse_tensors, read_file, read_json, shorten_repr
from flatout.runs import pack_arrays, write_bytes, write_json
from flatout.settings.fields import AtLeastOne, Model

JSON_FILE = "recipe.json"
JSON_BYTES = 8 << 20
TENSOR_FILE = "recipe-{}.safetensors"  # with the start of the content's sha256
HASH = "[0-9a-f]" * 12  # that start, as a pattern
HEADER_BYTES = 4096
MOST_INDICATORS = 1000
MOST_BARS = 100_000  # of the lookback
NAMED = 10  # symbols in a message
CURE = "get an undamaged copy, use the flatout that saved it, or fit it anew"


@dataclass(frozen=True)
class Recipe:
    """What the agent may know of each asset at bar t.

    indicators  names in the order of the observation, by default the usual 14; "1h:rsi" is that of
                larger bars, "extra:funding" a further column
    lookback    bars in the observation, newest first
    scaler      zscore, robust, quantile (normal) or quantile_uniform

    >>> from flatout import Recipe
    >>> from flatout.bars.synthetic import built_in_market
    >>> panel = built_in_market(n_bars=300)
    >>> Recipe(indicators=("return_1", "rsi"), lookback=2).count_warmup(panel)
    151
    """

    indicators: tuple[str, ...] = known.DEFAULT_INDICATORS
    lookback: int = 1
    scaler: str = "quantile"

    __pydantic_config__ = ConfigDict(extra="forbid")

    def __post_init__(self) -> None:
        given: object = self.indicators
        if not isinstance(given, tuple | list):
            raise RecipeError(f"indicators must be a tuple of names, got {given!r}")
        object.__setattr__(self, "indicators", tuple(given))
        _check_indicators(self.indicators)
        if type(self.lookback) is not int or not 1 <= self.lookback <= MOST_BARS:
            raise RecipeError(
                f"lookback must be a whole number of bars, 1 to {MOST_BARS:,}, got "
                f"{self.lookback!r}"
            )
        find_method(self.scaler)

    def count_warmup(self, panel: Panel) -> int:
        """Leading bars of a panel without a full observation, and how many bars an observation
        looks back: the longest indicator's, and the lookback behind it.

        An indicator of larger bars looks back as many of the panel's as those took, so the panel
        must be known.
        """
        return known.count_warmup(panel, self.indicators) + self.lookback - 1

    @property
    def coarse_sizes(self) -> tuple[int, ...]:
        """The sizes of larger bars that its indicators ask for, in seconds."""
        return tuple(sorted(set(group_by_bar(self.indicators)) - {0}))


@dataclass(frozen=True, eq=False)
class FittedRecipe:
    """A recipe with the scaler of its training rows, for bars of exactly these symbols and this
    size. `flatout.features.recipe.fit` makes it.

    recipe       the indicators, and how many bars an observation holds
    symbols      of the bars, in their order
    bar_seconds  the size of the bars
    scaler       its kind and its statistics, by symbol and indicator
    training     the rows that it was fitted on
    calendar     the exchange calendar by which larger bars are over, if indicators ask for such

    >>> import numpy as np
    >>> from flatout import FittedRecipe, Recipe
    >>> from flatout.bars.synthetic import built_in_market
    >>> from flatout.features.recipe import fit
    >>> panel = built_in_market(n_bars=300)
    >>> fitted: FittedRecipe = fit(Recipe(("return_1", "rsi")), panel, np.arange(200))
    >>> fitted.transform(panel).shape
    (300, 5, 2)
    """

    recipe: Recipe
    symbols: tuple[str, ...]
    bar_seconds: int
    scaler: Scaler
    training: TrainingRows
    calendar: str | None = None

    def __post_init__(self) -> None:
        if not self.symbols or not all(self.symbols) or len(set(self.symbols)) < len(self.symbols):
            raise RecipeError(
                f"symbols must be names, each of them once, got {shorten_repr(self.symbols)}"
            )
        check_statistics(self.scaler, (len(self.symbols), len(self.recipe.indicators)))
        for seconds in self.recipe.coarse_sizes:
            check_coarse_size(self.bar_seconds, seconds)

    @property
    def names(self) -> tuple[str, ...]:
        """One name per feature of an asset, in order."""
        return self.recipe.indicators

    @cached_property
    def schema_hash(self) -> str:
        """sha256 of what the features mean and in which order they come; two fits of one recipe
        share it.
        """
        meaning: dict[str, object] = {
            "symbols": self.symbols,
            "bar_seconds": self.bar_seconds,
            "indicators": self.recipe.indicators,
            "lookback": self.recipe.lookback,
            "scaler": self.recipe.scaler,
        }
        if self.calendar:
            meaning["calendar"] = self.calendar
        return hashlib.sha256(json.dumps(meaning, sort_keys=True).encode()).hexdigest()

    def check(self, panel: Panel) -> None:
        """Refuse bars of other symbols, in another order or of another size, and of another
        calendar if that decides what larger bars are.
        """
        _check_symbols(self.symbols, panel.symbols)
        if panel.bar_seconds != self.bar_seconds:
            raise RecipeError(
                f"fitted on bars of {bar_name(self.bar_seconds)}, given bars of "
                f"{bar_name(panel.bar_seconds)}; give `bar` as {bar_name(self.bar_seconds)}, to "
                "which shorter bars are resampled, or fit a recipe on the new size"
            )
        if self.recipe.coarse_sizes and name_of_calendar(panel) != self.calendar:
            names = [
                name and shorten_repr(name) for name in (self.calendar, name_of_calendar(panel))
            ]
            own, given = (name or "no exchange calendar" for name in names)
            raise RecipeError(
                f"fitted on bars with {own}, given bars with {given}: its indicators of larger "
                f"bars would mean something else; give bars with {own} (`calendar`, or "
                "data.calendar in the settings), or fit a recipe anew"
            )

    def transform(self, panel: Panel) -> NDArray[np.float32]:
        """Scaled features of a panel, (time, asset, feature); 0 where an indicator has no value."""
        self.check(panel)
        return scale(self.scaler, known.compute_indicators(panel, self.recipe.indicators))

    def save(self, folder: Path | str) -> None:
        """Writes the tensors under a name of their own, then `recipe.json`, which names them:
        killed at any moment, the folder holds the old recipe or the new one.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        tensors = pack_arrays({"statistics": self.scaler.statistics})
        facts = _description(self, tensors)
        write_bytes(_tensor_path(folder, facts), tensors)
        write_json(folder / JSON_FILE, facts.model_dump(mode="json", exclude_none=True))
        for old in find_written_files(folder) - {folder / JSON_FILE, _tensor_path(folder, facts)}:
            old.unlink()

    @classmethod
    def load(cls, folder: Path | str) -> "FittedRecipe":
        """Reads what `save` wrote; refuses damaged files, mismatched pairs and unknown versions."""
        path = Path(folder) / JSON_FILE
        facts = read_json(path, RecipeFacts, refuse=RecipeError, cure=CURE, limit=JSON_BYTES)
        scaler = Scaler(
            facts.recipe.scaler, _read_statistics(_tensor_path(Path(folder), facts), facts)
        )
        try:
            fitted = cls(
                recipe=facts.recipe,
                symbols=facts.symbols,
                bar_seconds=facts.bar_seconds,
                scaler=scaler,
                training=facts.training,
                calendar=facts.calendar,
            )
        except RecipeError as error:
            raise RecipeError(f"{path}: {error}; {CURE}") from None
        if fitted.schema_hash != facts.schema_hash:
            raise RecipeError(
                f"{path} was changed: its schema_hash does not fit its fields; {CURE}"
            )
        return fitted


class RecipeFacts(Model):
    """What `recipe.json` says."""

    format: Literal["flatout.recipe"]
    version: Literal[1]
    recipe: Recipe
    symbols: tuple[str, ...]
    bar_seconds: AtLeastOne
    training: TrainingRows
    calendar: str | None = None
    schema_hash: Sha256
    tensors_sha256: Sha256


def fit(recipe: Recipe, panel: Panel, train_rows: Rows) -> FittedRecipe:
    """Fits the recipe's scaler on the given rows (a mask or row numbers); later rows are not looked
    at.
    """
    return _fit(recipe, panel, train_rows, known.compute_indicators(panel, recipe.indicators))


def fit_each(
    recipe: Recipe, panel: Panel, train_rows: Sequence[Rows]
) -> list[tuple[FittedRecipe, NDArray[np.float32]]]:
    """The recipe fitted on each of several sets of rows, with the features it makes of the panel;
    the indicators are computed once.
    """
    values = known.compute_indicators(panel, recipe.indicators)
    fitted = [_fit(recipe, panel, rows, values) for rows in train_rows]
    return [(one, scale(one.scaler, values)) for one in fitted]


def _fit(recipe: Recipe, panel: Panel, train_rows: Rows, values: FloatArray) -> FittedRecipe:
    rows = row_numbers(train_rows, panel.n_bars)
    empty = np.isnan(values[rows]).all(axis=(0, 1))
    if empty.any():
        names = ", ".join(np.array(recipe.indicators)[empty])
        raise RecipeError(
            f"no value of {names} in the {len(rows)} training rows {rows[0]} to {rows[-1]}; the "
            f"warm-up takes {recipe.count_warmup(panel)} bars: give rows after it, or more bars"
        )
    times = np.datetime_as_string(panel.time[rows[[0, -1]]], unit="s")
    training = TrainingRows(
        count=len(rows),
        first=int(rows[0]),
        last=int(rows[-1]),
        first_time=f"{times[0]}Z",
        last_time=f"{times[1]}Z",
        panel_fingerprint=panel.fingerprint,
    )
    scaler = fit_scaler(recipe.scaler, values, rows)
    return FittedRecipe(
        recipe=recipe,
        symbols=panel.symbols,
        bar_seconds=panel.bar_seconds,
        scaler=scaler,
        training=training,
        calendar=name_of_calendar(panel) if recipe.coarse_sizes else None,
    )


# --- checks


def _check_indicators(names: tuple[str, ...]) -> None:
    if not 1 <= len(names) <= MOST_INDICATORS:
        raise RecipeError(f"a recipe has 1 to {MOST_INDICATORS:,} indicators, got {len(names):,}")
    for name in names:
        if not isinstance(name, str):
            raise RecipeError(
                f"an indicator is a name, or {EXTRA}NAME for a further column; got {name!r}"
            )
        known.warmup(name)
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise RecipeError(f"indicators given twice: {', '.join(twice)}")


def _check_symbols(fitted: tuple[str, ...], given: tuple[str, ...]) -> None:
    if given == fitted:
        return
    missing, unknown = set(fitted) - set(given), set(given) - set(fitted)
    if not missing and not unknown:
        raise RecipeError(
            f"symbols in another order: fitted on {_list_symbols(fitted)}; "
            f"given {_list_symbols(given)}; name them by `symbols` in the order of the former"
        )
    cure = (
        "give bars that hold all of the former"
        if missing
        else f"choose its own by `symbols`: {_list_symbols(fitted)}"
    )
    raise RecipeError(
        f"other symbols than the recipe was fitted on: missing "
        f"{_list_symbols([s for s in fitted if s in missing])}; "
        f"unknown {_list_symbols([s for s in given if s in unknown])}; {cure}"
    )


def _list_symbols(symbols: Sequence[str]) -> str:
    """The first of them, each as far as a message has room."""
    named = [symbol if len(symbol) <= 40 else f"{symbol[:40]}…" for symbol in symbols[:NAMED]]
    more = [f"{len(symbols) - NAMED:,} more"] if len(symbols) > NAMED else []
    return ", ".join([*named, *more]) or "none"


# --- files


def _description(fitted: FittedRecipe, tensors: bytes) -> RecipeFacts:
    return RecipeFacts(
        format="flatout.recipe",
        version=1,
        recipe=fitted.recipe,
        symbols=fitted.symbols,
        bar_seconds=fitted.bar_seconds,
        training=fitted.training,
        calendar=fitted.calendar,
        schema_hash=fitted.schema_hash,
        tensors_sha256=hashlib.sha256(tensors).hexdigest(),
    )


def _tensor_path(folder: Path, facts: RecipeFacts) -> Path:
    """Where the tensors are that the description names."""
    return folder / TENSOR_FILE.format(facts.tensors_sha256[:12])


def _read_statistics(path: Path, facts: RecipeFacts) -> NumpyArray:
    """The one array that the description names."""
    content = read_file(path, 8 * MOST_STATISTICS + HEADER_BYTES, RecipeError, CURE)
    if hashlib.sha256(content).hexdigest() != facts.tensors_sha256:
        raise RecipeError(f"{path} is damaged or belongs to another {JSON_FILE}; {CURE}")
    arrays = parse_tensors(content, str(path), RecipeError, CURE).arrays
    if set(arrays) != {"statistics"}:
        raise RecipeError(
            f"{path} holds {shorten_repr(sorted(arrays))}, and not 'statistics' alone; {CURE}"
        )
    return arrays["statistics"]


def find_written_files(folder: Path) -> set[Path]:
    """What saves wrote into a recipe's folder, also what is left of those that were killed; nothing
    else.
    """
    names = (JSON_FILE, TENSOR_FILE.format(HASH))
    found = {
        path
        for name in names
        for pattern in (name, f".{name}.????????")
        for path in folder.glob(pattern)
    }
    return {path for path in found if path.is_file() and not path.is_symlink()}
