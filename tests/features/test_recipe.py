"""Recipes: what they accept, what a fitted one refuses; files come back bit for bit or not at
all.
"""

import hashlib
import json
import os
from dataclasses import replace

import numpy as np
import pytest
import safetensors.numpy
from feature_panels import listed_late, random_panel

from flatout.errors import RecipeError
from flatout.features.indicators import DEFAULT_INDICATORS, compute_indicators, warmup
from flatout.features.recipe import FittedRecipe, Recipe, fit
from flatout.features.scalers import SCALERS, scale

PANEL = listed_late(random_panel(1, bars=500, assets=3), asset=2, start=60)
TRAIN = np.arange(200, 400)


@pytest.fixture
def fitted() -> FittedRecipe:
    return fit(
        Recipe(("rsi", "return_1", "breakout_volume"), lookback=3, scaler="quantile"), PANEL, TRAIN
    )


def test_defaults():
    recipe = Recipe()
    assert recipe.indicators == DEFAULT_INDICATORS
    assert (recipe.lookback, recipe.scaler) == (1, "quantile")
    assert recipe.count_warmup(PANEL) == max(warmup(name) for name in DEFAULT_INDICATORS)


def test_warmup_counts_the_lookback():
    recipe = Recipe(("return_5", "return_1", "extra:funding"), lookback=4)
    assert recipe.count_warmup(PANEL) == 5 + 3
    values = compute_indicators(PANEL, ("return_5", "return_1"))[:, 0]
    window = np.isfinite(values).all(axis=1)
    complete = [window[max(t - 3, 0) : t + 1].sum() == 4 for t in range(20)]
    assert complete.index(True) == recipe.count_warmup(PANEL)


def test_lists_become_tuples_and_recipes_compare():
    assert Recipe(["rsi", "dx"]) == Recipe(("rsi", "dx"))
    assert Recipe(("dx", "rsi")) != Recipe(("rsi", "dx"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"indicators": ("rsi", "macd_histo")}, r"'macd_histo'; did you mean 'macd_hist'\?"),
        ({"indicators": ("zzzz",)}, r"unknown indicator 'zzzz'\. Known: macd, "),
        ({"indicators": ()}, "1 to 1,000 indicators, got 0"),
        (
            {"indicators": tuple(f"extra:{k}" for k in range(1001))},
            "1 to 1,000 indicators, got 1,001",
        ),
        ({"indicators": "rsi"}, "must be a tuple of names, got 'rsi'"),
        ({"indicators": None}, "must be a tuple of names, got None"),
        ({"indicators": ("extra:",)}, "extra:NAME"),
        ({"indicators": (3,)}, "got 3"),
        ({"indicators": ("rsi", "dx", "rsi")}, "given twice: rsi"),
        ({"lookback": 0}, "1 to 100,000, got 0"),
        ({"lookback": 10**9}, "1 to 100,000, got 1000000000"),
        ({"lookback": 2.0}, "whole number of bars, 1 to 100,000, got 2.0"),
        ({"lookback": True}, "got True"),
        ({"scaler": "zscor"}, r"unknown scaler 'zscor'; did you mean 'zscore'\?"),
        ({"scaler": None}, "unknown scaler None"),
    ],
)
def test_bad_recipes_are_refused_by_name(given, message):
    with pytest.raises(RecipeError, match=message):
        Recipe(**given)


@pytest.mark.parametrize("scaler", SCALERS)
def test_transform_is_compute_then_scale(scaler):
    fitted = fit(Recipe(scaler=scaler), PANEL, TRAIN)
    features = fitted.transform(PANEL)
    assert features.shape == (500, 3, 14)
    assert features.dtype == np.float32
    assert np.isfinite(features).all()
    assert fitted.names == DEFAULT_INDICATORS
    np.testing.assert_array_equal(
        features, scale(fitted.scaler, compute_indicators(PANEL, DEFAULT_INDICATORS))
    )


def test_fit_records_its_rows(fitted):
    mask = np.zeros(500, bool)
    mask[TRAIN] = True
    same = fit(fitted.recipe, PANEL, mask)
    assert same.training == fitted.training
    assert same.scaler.statistics.tobytes() == fitted.scaler.statistics.tobytes()
    assert (fitted.training.count, fitted.training.first, fitted.training.last) == (200, 200, 399)
    assert fitted.training.first_time == "2021-03-09T08:00:00Z"
    assert fitted.training.last_time == "2021-03-17T15:00:00Z"
    assert fitted.training.panel_fingerprint == PANEL.fingerprint


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.ones(499, bool), "mask of training rows has 499 entries, the panel 500 bars"),
        (np.array([5, 500]), "of 0 to 499"),
        (np.array([-1, 5]), "of 0 to 499"),
        (np.array([7, 7]), "at least 2"),
        (np.zeros(500, bool), "at least 2"),
        (np.array([], np.int64), "non-empty"),
        (np.array([[1, 2]]), "shape"),
        (np.array([1.0, 2.0]), "mask or row numbers, got float64"),
        (
            np.arange(100),
            "no value of rsi in the 100 training rows 0 to 99; the warm-up takes 150 bars",
        ),
    ],
)
def test_bad_training_rows_are_refused(rows, message):
    with pytest.raises(RecipeError, match=message):
        fit(Recipe(("return_1", "rsi")), PANEL, rows)


def test_other_bars_are_refused_by_name(fitted):
    a, b, c = PANEL.symbols
    with pytest.raises(
        RecipeError, match="another order: fitted on COIN0, COIN1, COIN2; given COIN1, COIN0"
    ):
        fitted.transform(replace(PANEL, symbols=(b, a, c)))
    with pytest.raises(RecipeError, match="missing COIN2; unknown DOGE"):
        fitted.transform(replace(PANEL, symbols=(a, b, "DOGE")))
    with pytest.raises(RecipeError, match="missing COIN2; unknown none"):
        fitted.transform(random_panel(1, assets=2))
    with pytest.raises(RecipeError, match="bars of 1h, given bars of 5m"):
        fitted.transform(replace(PANEL, bar_seconds=300))
    with pytest.raises(RecipeError, match="no further column 'funding'; it has: none"):
        extra = replace(PANEL, extras={"funding": np.ones(PANEL.close.shape)})
        fit(Recipe(("extra:funding",)), extra, TRAIN).transform(PANEL)


def test_schema_hash_is_the_meaning_and_not_the_fit(fitted):
    recipe = fitted.recipe
    assert fit(recipe, PANEL, np.arange(160, 300)).schema_hash == fitted.schema_hash
    others = [
        fit(replace(recipe, indicators=recipe.indicators[::-1]), PANEL, TRAIN),
        fit(replace(recipe, lookback=4), PANEL, TRAIN),
        fit(replace(recipe, scaler="robust"), PANEL, TRAIN),
        fit(recipe, replace(PANEL, bar_seconds=60), TRAIN),
        fit(recipe, replace(PANEL, symbols=("COIN1", "COIN0", "COIN2")), TRAIN),
        fit(recipe, replace(PANEL, symbols=("COIN0", "COIN1", "COIN3")), TRAIN),
    ]
    assert len({fitted.schema_hash, *(other.schema_hash for other in others)}) == 7


def test_schema_hash_does_not_change_between_releases(fitted):
    assert fitted.schema_hash == "3aa589a5c02660fd90e42b780ac32111b08a3a7719016009363b24b5c2f8004d"


@pytest.mark.parametrize("scaler", SCALERS)
def test_saved_recipe_comes_back_bit_for_bit(tmp_path, scaler):
    late = listed_late(
        PANEL, asset=0, start=450
    )  # a column without training values: its statistics are NaN
    fitted = fit(Recipe(lookback=2, scaler=scaler), late, TRAIN)
    fitted.save(tmp_path / "policy")
    loaded = FittedRecipe.load(str(tmp_path / "policy"))
    assert (loaded.recipe, loaded.symbols, loaded.bar_seconds, loaded.training) == (
        fitted.recipe, fitted.symbols, fitted.bar_seconds, fitted.training,
    )  # fmt: skip
    assert loaded.scaler.statistics.tobytes() == fitted.scaler.statistics.tobytes()
    assert loaded.schema_hash == fitted.schema_hash
    assert loaded.transform(late).tobytes() == fitted.transform(late).tobytes()
    assert sorted(p.suffix for p in (tmp_path / "policy").iterdir()) == [".json", ".safetensors"]


def test_saving_again_replaces_and_repeats(tmp_path, fitted):
    fit(fitted.recipe, PANEL, np.arange(160, 300)).save(tmp_path)
    fitted.save(tmp_path)
    first = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert FittedRecipe.load(tmp_path).training == fitted.training
    fitted.save(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == first


def test_failed_save_leaves_the_old_files(tmp_path, fitted, monkeypatch):
    fitted.save(tmp_path)

    def full_disk(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="No space"):
        fit(fitted.recipe, PANEL, np.arange(160, 300)).save(tmp_path)
    assert FittedRecipe.load(tmp_path).training == fitted.training
    assert len(list(tmp_path.iterdir())) == 2


def test_killed_between_the_two_files_the_old_recipe_is_still_there(tmp_path, fitted, monkeypatch):
    fitted.save(tmp_path)

    def killed(path, facts):
        raise KeyboardInterrupt

    monkeypatch.setattr("flatout.features.recipe.write_json", killed)
    with pytest.raises(KeyboardInterrupt):
        fit(fitted.recipe, PANEL, np.arange(160, 300)).save(tmp_path)
    assert FittedRecipe.load(tmp_path).training == fitted.training
    monkeypatch.undo()
    fitted.save(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("which", ["recipe.json", "*.safetensors"])
def test_every_truncation_is_refused(tmp_path, fitted, which):
    fitted.save(tmp_path)
    (path,) = tmp_path.glob(which)
    whole = path.read_bytes()
    for keep in np.unique(np.linspace(0, len(whole) - 2, 60, dtype=int)):
        path.write_bytes(whole[:keep])
        with pytest.raises(RecipeError, match="recipe"):
            FittedRecipe.load(tmp_path)


def test_flipped_byte_missing_file_and_foreign_pair_are_refused(tmp_path, fitted):
    fitted.save(tmp_path)
    (tensors,) = tmp_path.glob("*.safetensors")
    damaged = bytearray(tensors.read_bytes())
    damaged[-1] ^= 1
    tensors.write_bytes(damaged)
    with pytest.raises(RecipeError, match=r"damaged or belongs to another recipe\.json"):
        FittedRecipe.load(tmp_path)
    fit(fitted.recipe, PANEL, np.arange(160, 300)).save(tmp_path / "other")
    (foreign,) = (tmp_path / "other").glob("*.safetensors")
    tensors.write_bytes(foreign.read_bytes())
    with pytest.raises(RecipeError, match=r"damaged or belongs to another recipe\.json"):
        FittedRecipe.load(tmp_path)
    tensors.unlink()
    with pytest.raises(
        RecipeError, match=r"recipe-.*safetensors: there is no such file; get an undamaged copy"
    ):
        FittedRecipe.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"version": 2},
            r"recipe\.json: version: Input should be 1, given 2; .*use the flatout that saved it",
        ),
        ({"version": None}, "version: Input should be 1, given None"),
        ({"format": "else"}, "format: Input should be 'flatout.recipe', given 'else'"),
        ({"symbols": ["COIN1", "COIN0", "COIN2"]}, "schema_hash does not fit"),
        ({"bar_seconds": 60}, "schema_hash does not fit"),
        ({"symbols": ["COIN0"]}, r"not float64 \(2 to 1000, 1, 3\)"),
        ({"recipe": {"indicators": ["rsi"], "colour": 1}}, "recipe.colour: Unexpected keyword"),
        ({"recipe": {"indicators": ["rsj"]}}, "did you mean 'rsi'"),
        ({"recipe": 3}, "recipe: Input should be an object, given 3"),
        ({"training": {}}, "training.count is missing"),
        ({"colour": 1}, "colour: Extra inputs are not permitted"),
        ({"symbols": ["COIN0", "COIN0", "COIN2"]}, "symbols must be names, each of them once"),
        ({"symbols": ["COIN0", 1, "COIN2"]}, "symbols.1: Input should be a valid string, given 1"),
        ({"bar_seconds": "60"}, "bar_seconds: Input should be a valid integer"),
        ({"bar_seconds": 0}, "bar_seconds: Input should be greater than or equal to 1"),
        ({"tensors_sha256": "../../../../etc"}, "tensors_sha256: String should match pattern"),
        ({"tensors_sha256": "0" * 64}, r"recipe-0{12}\.safetensors: there is no such file"),
    ],
)
def test_changed_description_is_refused(tmp_path, fitted, change, message):
    fitted.save(tmp_path)
    path = tmp_path / "recipe.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(RecipeError, match=message):
        FittedRecipe.load(tmp_path)


def test_missing_field_and_wrong_json_are_refused(tmp_path, fitted):
    fitted.save(tmp_path)
    path = tmp_path / "recipe.json"
    facts = json.loads(path.read_text())
    del facts["symbols"]
    path.write_text(json.dumps(facts))
    with pytest.raises(RecipeError, match="symbols is missing"):
        FittedRecipe.load(tmp_path)
    for text in ("[]", "[" * 100_000, '{"format":' * 5_000, "9" * 5_000, "NaN", '"\\ud800"'):
        path.write_text(text)
        with pytest.raises(RecipeError, match=r"recipe\.json: .*get an undamaged copy"):
            FittedRecipe.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"first_time": "yesterday"}, "times such as 2024-01-31T23:00:00Z"),
        ({"last_time": "now"}, "times such as"),
        ({"last_time": "2024-13-01T00:00:00Z"}, "times such as"),
        ({"last_time": "1970-01-01T00:00:00Z"}, "the first before the last"),
        ({"count": 10**9}, "1000000000 training rows from .* cannot be"),
        ({"first": -1}, "cannot be"),
        ({"count": True}, "training.count: Input should be a valid integer, given True"),
        ({"colour": 1}, "training.colour: Unexpected keyword"),
    ],
)
def test_training_rows_that_cannot_be_are_refused(tmp_path, fitted, change, message):
    fitted.save(tmp_path)
    path = tmp_path / "recipe.json"
    facts = json.loads(path.read_text())
    path.write_text(json.dumps(facts | {"training": facts["training"] | change}))
    with pytest.raises(RecipeError, match=message):
        FittedRecipe.load(tmp_path)


def sign(folder, tensors):
    """Other tensors in a recipe's folder, whose hash fits."""
    path = folder / "recipe.json"
    digest = hashlib.sha256(tensors).hexdigest()
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tensors_sha256": digest}))
    (folder / f"recipe-{digest[:12]}.safetensors").write_bytes(tensors)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda s: {"statistics": np.where(s == s[3, 1, 1], np.inf, s)},
            "hold NaN or infinite values",
        ),
        (
            lambda s: {"statistics": np.where(s == s[3, 1, 1], np.nan, s)},
            "hold NaN or infinite values",
        ),
        (lambda s: {"statistics": np.full_like(s, np.nan)}, "hold NaN or infinite values"),
        (lambda s: {"statistics": s[::-1].copy()}, "quantiles do not ascend"),
        (lambda s: {"statistics": s.astype(np.float32)}, "are float32"),
        (lambda s: {"statistics": s[:1]}, r"are float64 \(1, 3, 3\)"),
        (lambda s: {"statistics": s[0]}, r"are float64 \(3, 3\)"),
        (lambda s: {"statistics": s, "more": s}, "holds .*, and not 'statistics' alone"),
        (lambda s: {"other": s}, "and not 'statistics' alone"),
    ],
)
def test_a_strangers_statistics_are_refused(tmp_path, fitted, change, message):
    fitted.save(tmp_path)
    sign(tmp_path, safetensors.numpy.save(change(fitted.scaler.statistics)))
    with pytest.raises(RecipeError, match=message):
        FittedRecipe.load(tmp_path)


def test_kinds_that_numpy_does_not_know_are_refused(tmp_path, fitted):
    fitted.save(tmp_path)
    (path,) = tmp_path.glob("*.safetensors")
    sign(tmp_path, path.read_bytes().replace(b'"F64"', b'"C64"'))
    with pytest.raises(RecipeError, match="'statistics' is of kind 'C64'"):
        FittedRecipe.load(tmp_path)


def test_files_that_a_save_did_not_write_stay(tmp_path, fitted):
    (tmp_path / "canary").write_text("mine")
    strange = (
        "recipe-mine.safetensors",
        "recipe-0123456789ab.safetensors.bak",
        ".recipe.json",
        "notes.txt",
    )
    for name in strange:
        (tmp_path / name).touch()
    (tmp_path / "recipe-0123456789ab.safetensors").symlink_to(tmp_path / "canary")
    (tmp_path / ".recipe.json.abcdefgh").touch()  # what a killed save leaves
    fitted.save(tmp_path)
    assert {*strange, "recipe-0123456789ab.safetensors", "recipe.json"} < {
        path.name for path in tmp_path.iterdir()
    }
    assert not (tmp_path / ".recipe.json.abcdefgh").exists()
    assert (tmp_path / "canary").read_text() == "mine"


def test_a_pipe_is_not_waited_for_and_a_huge_file_not_read(tmp_path, fitted):
    fitted.save(tmp_path)
    (path,) = tmp_path.glob("*.safetensors")
    with path.open("r+b") as file:
        file.truncate(20 << 30)
    with pytest.raises(
        RecipeError, match=r"has 21,474,836,480 bytes, and at most 400,004,096 are read"
    ):
        FittedRecipe.load(tmp_path)
    (tmp_path / "recipe.json").unlink()
    os.mkfifo(tmp_path / "recipe.json")
    with pytest.raises(RecipeError, match="is a pipe, a socket or a device"):
        FittedRecipe.load(tmp_path)


def test_a_message_names_ten_symbols_at_most(fitted):
    many = replace(PANEL, symbols=tuple(f"{'X' * 100_000}{k}" for k in range(3)))
    with pytest.raises(RecipeError, match="missing COIN0, COIN1, COIN2; unknown XXX") as refused:
        fitted.check(many)
    assert len(str(refused.value)) < 300


def test_tensor_file_is_plain_safetensors(tmp_path, fitted):
    fitted.save(tmp_path)
    (path,) = tmp_path.glob("*.safetensors")
    tensors = safetensors.numpy.load_file(path)
    assert list(tensors) == ["statistics"]
    assert tensors["statistics"].shape == (200, 3, 3)
