"""`Recipe`: which features the agent sees. `FittedRecipe`: the same with its scaler and its symbols.

A fitted recipe travels with the policy. It turns bars into features in training, testing and live alike, and
refuses bars that mean something else: other symbols, another order, another bar size. On disk it is
`recipe.json` beside `recipe-<hash>.safetensors`. This file knows nothing about accounts, actions or networks, and it
does not stack the lookback: whoever builds observations gathers rows t, t-1, ...
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from flatout.bars.panel import FloatArray, Panel
from flatout.errors import RecipeError
from flatout.features import indicators as known
from flatout.features.scalers import Rows, Scaler, find_method, fit_scaler, scale
from flatout.run_directory import write_bytes, write_json

FORMAT = "flatout.recipe"
VERSION = 1
JSON_FILE = "recipe.json"
TENSOR_FILES = "recipe-*.safetensors"  # the star is the start of the content's sha256


@dataclass(frozen=True)
class Recipe:
    """What the agent may know of each asset at bar t."""

    indicators: tuple[str, ...] = known.DEFAULT_INDICATORS  # in the order of the observation
    lookback: int = 1  # bars in the observation, newest first
    scaler: str = "quantile"  # zscore, robust, quantile (normal) or quantile_uniform

    def __post_init__(self) -> None:
        given: object = self.indicators
        if not isinstance(given, tuple | list):
            raise RecipeError(f"indicators must be a tuple of names, got {given!r}")
        object.__setattr__(self, "indicators", tuple(given))
        _check_indicators(self.indicators)
        if type(self.lookback) is not int or self.lookback < 1:
            raise RecipeError(f"lookback must be a whole number of bars, at least 1, got {self.lookback!r}")
        find_method(self.scaler)

    @property
    def warmup(self) -> int:
        """Leading bars without a full observation: the longest indicator's, and the lookback behind it."""
        return max(known.warmup(name) for name in self.indicators) + self.lookback - 1


@dataclass(frozen=True)
class TrainingRows:
    """Which rows of which bars the scaler was fitted on."""

    count: int
    first: int  # row numbers in the panel
    last: int
    first_time: str  # bar-open times, UTC
    last_time: str
    panel_fingerprint: str


@dataclass(frozen=True, eq=False)
class FittedRecipe:
    """A recipe with the scaler of its training rows, for bars of exactly these symbols and this size."""

    recipe: Recipe
    symbols: tuple[str, ...]
    bar_seconds: int
    scaler: Scaler
    training: TrainingRows

    @property
    def names(self) -> tuple[str, ...]:
        """One name per feature of an asset, in order."""
        return self.recipe.indicators

    @cached_property
    def schema_hash(self) -> str:
        """sha256 of what the features mean and in which order they come; two fits of one recipe share it."""
        meaning = {
            "symbols": self.symbols,
            "bar_seconds": self.bar_seconds,
            "indicators": self.recipe.indicators,
            "lookback": self.recipe.lookback,
            "scaler": self.recipe.scaler,
        }
        return hashlib.sha256(json.dumps(meaning, sort_keys=True).encode()).hexdigest()

    def check(self, panel: Panel) -> None:
        """Refuse bars of other symbols, in another order or of another size."""
        _check_symbols(self.symbols, panel.symbols)
        if panel.bar_seconds != self.bar_seconds:
            raise RecipeError(
                f"fitted on bars of {self.bar_seconds} s, given bars of {panel.bar_seconds} s; "
                "resample the bars or fit a recipe on the new size"
            )

    def transform(self, panel: Panel) -> NDArray[np.float32]:
        """Scaled features of a panel, (time, asset, feature); 0 where an indicator has no value."""
        self.check(panel)
        return scale(self.scaler, known.compute(panel, self.recipe.indicators))

    def save(self, folder: Path | str) -> None:
        """Writes the tensors under a name of their own, then `recipe.json`, which names them: killed at any moment, the
        folder holds the old recipe or the new one.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        tensors = safetensors.numpy.save({"statistics": np.ascontiguousarray(self.scaler.statistics)})
        facts = _description(self, tensors)
        write_bytes(_tensor_path(folder, facts), tensors)
        write_json(folder / JSON_FILE, facts)
        for old in set(folder.glob(TENSOR_FILES)) - {_tensor_path(folder, facts)}:
            old.unlink()

    @classmethod
    def load(cls, folder: Path | str) -> "FittedRecipe":
        """Reads what `save` wrote; refuses damaged files, mismatched pairs and unknown versions."""
        folder = Path(folder)
        facts = _read_description(folder / JSON_FILE)
        path = _tensor_path(folder, facts)
        tensors = _read_bytes(path)
        if hashlib.sha256(tensors).hexdigest() != facts.get("tensors_sha256"):
            raise RecipeError(f"{path} is damaged or belongs to another {JSON_FILE}")
        try:
            fitted = _assemble(facts, safetensors.numpy.load(tensors)["statistics"])
        except (KeyError, TypeError, safetensors.SafetensorError) as error:
            raise RecipeError(f"{folder / JSON_FILE} lacks or misstates a field: {error!r}") from error
        if fitted.schema_hash != facts.get("schema_hash"):
            raise RecipeError(f"{folder / JSON_FILE} was changed: its schema_hash does not fit its fields")
        return fitted


def fit(recipe: Recipe, panel: Panel, train_rows: Rows) -> FittedRecipe:
    """Fits the recipe's scaler on the given rows (a mask or row numbers); later rows are not looked at."""
    return _fit(recipe, panel, train_rows, known.compute(panel, recipe.indicators))


def fit_each(
    recipe: Recipe, panel: Panel, train_rows: Sequence[Rows]
) -> list[tuple[FittedRecipe, NDArray[np.float32]]]:
    """The recipe fitted on each of several sets of rows, with the features it makes of the panel; the indicators are
    computed once.
    """
    values = known.compute(panel, recipe.indicators)
    fitted = [_fit(recipe, panel, rows, values) for rows in train_rows]
    return [(one, scale(one.scaler, values)) for one in fitted]


def _fit(recipe: Recipe, panel: Panel, train_rows: Rows, values: FloatArray) -> FittedRecipe:
    rows = _row_numbers(train_rows, panel.n_bars)
    empty = np.isnan(values[rows]).all(axis=(0, 1))
    if empty.any():
        names = ", ".join(np.array(recipe.indicators)[empty])
        raise RecipeError(
            f"no value of {names} in the {len(rows)} training rows {rows[0]} to {rows[-1]}; the warm-up "
            f"takes {recipe.warmup} bars: give rows after it, or more bars"
        )
    times = np.datetime_as_string(panel.time[rows[[0, -1]]], unit="s")
    training = TrainingRows(len(rows), int(rows[0]), int(rows[-1]), f"{times[0]}Z", f"{times[1]}Z", panel.fingerprint)
    scaler = fit_scaler(recipe.scaler, values, rows)
    return FittedRecipe(recipe, panel.symbols, panel.bar_seconds, scaler, training)


# --- checks ----------------------------------------------------------------------------------------


def _check_indicators(names: tuple[str, ...]) -> None:
    if not names:
        raise RecipeError("a recipe needs at least one indicator")
    for name in names:
        if not isinstance(name, str) or name == known.EXTRA:
            raise RecipeError(f"an indicator is a name, or {known.EXTRA}NAME for a further column; got {name!r}")
        known.warmup(name)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise RecipeError(f"indicators given twice: {', '.join(twice)}")


def _check_symbols(fitted: tuple[str, ...], given: tuple[str, ...]) -> None:
    if given == fitted:
        return
    missing = [symbol for symbol in fitted if symbol not in given]
    unknown = [symbol for symbol in given if symbol not in fitted]
    if not missing and not unknown:
        raise RecipeError(f"symbols in another order: fitted on {', '.join(fitted)}; given {', '.join(given)}")
    raise RecipeError(
        f"other symbols than the recipe was fitted on: missing {', '.join(missing) or 'none'}; "
        f"unknown {', '.join(unknown) or 'none'}"
    )


def _row_numbers(rows: Rows, n_bars: int) -> NDArray[np.int64]:
    """Sorted row numbers from a mask over all rows or from row numbers."""
    given = np.asarray(rows)
    if given.ndim != 1 or not given.size:
        raise RecipeError(f"training rows must be a non-empty list of rows, got shape {given.shape}")
    if given.dtype == np.bool_:
        if len(given) != n_bars:
            raise RecipeError(f"the mask of training rows has {len(given)} entries, the panel {n_bars} bars")
        given = np.flatnonzero(given)
    elif not np.issubdtype(given.dtype, np.integer):
        raise RecipeError(f"training rows must be a mask or row numbers, got {given.dtype}")
    numbers = np.unique(given).astype(np.int64)
    if len(numbers) < 2 or numbers[0] < 0 or numbers[-1] >= n_bars:
        raise RecipeError(f"training rows must be at least 2 of 0 to {n_bars - 1}, got {numbers}")
    return numbers


# --- files -----------------------------------------------------------------------------------------


def _description(fitted: FittedRecipe, tensors: bytes) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "recipe": asdict(fitted.recipe),
        "symbols": fitted.symbols,
        "bar_seconds": fitted.bar_seconds,
        "training": asdict(fitted.training),
        "schema_hash": fitted.schema_hash,
        "tensors_sha256": hashlib.sha256(tensors).hexdigest(),
    }


def _tensor_path(folder: Path, facts: Mapping[str, Any]) -> Path:
    """Where the tensors are that the description names."""
    return folder / TENSOR_FILES.replace("*", str(facts.get("tensors_sha256"))[:12])


def _assemble(facts: Mapping[str, Any], statistics: NDArray[Any]) -> FittedRecipe:
    recipe = Recipe(**facts["recipe"])
    symbols = tuple(facts["symbols"])
    expected = (len(symbols), len(recipe.indicators))
    if statistics.dtype != np.float64 or statistics.ndim != 3 or statistics.shape[1:] != expected:
        raise RecipeError(
            f"{TENSOR_FILES} holds {statistics.dtype} {statistics.shape}, "
            f"not float64 (statistic, {expected[0]}, {expected[1]})"
        )
    scaler = Scaler(recipe.scaler, statistics)
    return FittedRecipe(recipe, symbols, facts["bar_seconds"], scaler, TrainingRows(**facts["training"]))


def _read_description(path: Path) -> dict[str, Any]:
    content = _read_bytes(path)
    try:
        facts = json.loads(content)
    except ValueError as error:
        raise RecipeError(f"{path} is not JSON, perhaps cut off: {error}") from error
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise RecipeError(f"{path} is not a recipe (format {FORMAT!r})")
    if facts.get("version") != VERSION:
        raise RecipeError(f"{path} has version {facts.get('version')!r}; this flatout reads version {VERSION}")
    return facts


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise RecipeError(f"cannot read {path}: {error.strerror}") from error
