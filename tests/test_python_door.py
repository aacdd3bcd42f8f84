"""What Python's door takes and refuses: whatever is given, a refusal is flatout's own, in a
sentence.
"""

from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import flatout
from flatout.bars.synthetic import RandomWalk
from flatout.bars.write import to_table
from flatout.errors import BundleError, FlatoutError
from flatout.evaluation.saved_policy import SavedPolicy
from flatout.settings.loading import resolve_settings
from flatout.training.result import TrainingResult
from flatout.training.train import prepare_new
from small_bundles import bundle_of

NO_PATH = "which is no path; give that of a file or folder"
POLICY = SavedPolicy(bundle_of(), Path("learned"))
SIZE = POLICY.bundle.observation_size
RESULT = TrainingResult(Path("run"), {}, {"AAA": ("AAA/best", "AAA/last")})


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: flatout.train(out=None), f"`out` is None, {NO_PATH}"),
        (lambda: flatout.train(out=3), f"`out` is 3, {NO_PATH}"),
        (lambda: flatout.train(out=""), f"`out` is '', {NO_PATH}"),
        (lambda: flatout.train(out="a\0b"), NO_PATH),
        (lambda: flatout.train(resume=3), f"`resume` is 3, {NO_PATH}"),
        (lambda: flatout.train(resume=""), f"`resume` is '', {NO_PATH}"),
        (lambda: flatout.train(settings=""), f"settings is '', {NO_PATH}"),
        (lambda: flatout.load_settings(""), f"settings is '', {NO_PATH}"),
        (lambda: flatout.load_policy(3), f"the folder of a policy is 3, {NO_PATH}"),
        (lambda: flatout.run_study(out=3), f"`out` is 3, {NO_PATH}"),
        (lambda: flatout.run_study(name=3), "`name` is 3: give a text"),
        (lambda: flatout.run_study(storage=3), "`storage` is 3: give a text"),
        (lambda: flatout.export_policy(3, "onnx"), f"the folder of a policy is 3, {NO_PATH}"),
        (lambda: flatout.export_policy("x", 3), "there is no export to 3: choose one of sb3"),
        (
            lambda: RESULT.load_policy(which="worst"),
            "no policy 'worst' of AAA; saved are: best and",
        ),
        (lambda: POLICY.predict("abc"), f"the observation is 'abc': give {SIZE} numbers, or rows"),
        (lambda: POLICY.predict({}), f"the observation is {{}}: give {SIZE} numbers, or rows"),
        (lambda: POLICY.predict([[1.0], [1.0, 2.0]]), f"give {SIZE} numbers, or rows of as many"),
    ],
)
def test_what_is_refused_is_said(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(FlatoutError) as refused:
        call()
    assert said in str(refused.value)


def test_a_policy_in_memory_is_exported(tmp_path: Path) -> None:
    POLICY.bundle.save(tmp_path / "best")
    written = [
        flatout.export_policy(policy, "joblib", tmp_path / f"{k}.joblib")
        for k, policy in enumerate((tmp_path / "best", flatout.load_policy(tmp_path / "best")))
    ]
    assert written[0].sha256 == written[1].sha256


def test_the_file_of_a_policy_is_answered_with_its_folder(tmp_path: Path) -> None:
    POLICY.bundle.save(tmp_path / "best")
    with pytest.raises(BundleError, match=f"is a file; give the folder of a policy, as {tmp_path}"):
        flatout.load_policy(tmp_path / "best" / "policy.json")


SMALL: dict[str, Any] = {"features": {"indicators": ["return_1"]}, "train": {"n_envs": 4}}
WALK = RandomWalk(n_bars=300, seed=2, symbols=("AAA", "BBB")).panel()


@pytest.mark.parametrize(
    ("changes", "given"),
    [
        ({"train.timesteps": np.int64(128)}, {"seed": np.int64(3), "workers": np.int32(1)}),
        ({"train.timesteps": 1.28e2}, {"seed": 3.0, "workers": 1.0, "evaluations": 2e1}),
        ({"train.timesteps": np.float64(128)}, {"seed": np.uint8(3), "evaluations": np.int16(20)}),
        ({"train.timesteps": 128, "folds.hold_out": np.float64(0.2)}, {"seed": 3}),
    ],
)
def test_whole_numbers_are_taken_however_they_are_written(
    changes: dict[str, Any], given: dict[str, Any]
) -> None:
    made = prepare_new(resolve_settings(SMALL, changes), WALK, **{"workers": 1, **given})
    usual = {"train.timesteps": 128}
    wanted = prepare_new(resolve_settings(SMALL, usual), WALK, seed=3, workers=1)
    assert made.request == wanted.request
    assert [type(value) for value in astuple(made.request)] == [
        type(value) for value in astuple(wanted.request)
    ]


def test_tables_take_them_too() -> None:
    tables = {"train": {"n_envs": np.int64(8), "timesteps": 1e6, "gamma": np.float32(0.5)}}
    train = resolve_settings(tables).settings.train
    assert (train.n_envs, train.timesteps, train.gamma) == (8, 1_000_000, 0.5)
    assert type(train.n_envs) is int


@pytest.mark.parametrize(
    "symbols", [["AAA,BBB"], "AAA, BBB", np.array(["AAA", "BBB"]), pd.Index(["AAA", "BBB"])]
)
def test_symbols_may_be_a_text_or_an_array(symbols: Any) -> None:
    made = prepare_new(resolve_settings(SMALL), WALK, symbols=symbols, workers=1)
    assert made.request.symbols == ["AAA", "BBB"]
    assert not made.request.portfolio
    assert flatout.read_bars(to_table(WALK), symbols=symbols).symbols == ("AAA", "BBB")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"portfolio": "yes"}, "portfolio is 'yes': give True or False"),
        ({"bars": 5}, "bars are of type int: give a path, a Panel, or a frame of Polars or pandas"),
        ({"bars": WALK, "symbols": {"AAA": 1}}, "give names, as in ['BTC', 'ETH']"),
        ({"bars": WALK, "symbols": np.array([1, 2])}, "give names, as in ['BTC', 'ETH']"),
        ({"timesteps": 1.5}, "valid integer; given 1.5"),
        ({"seed": True}, "seed is True: give a whole number"),
    ],
)
def test_other_arguments_are_refused_by_what_is_allowed(given: dict[str, Any], said: str) -> None:
    with pytest.raises(FlatoutError) as refused:
        flatout.train(settings=SMALL, progress=False, **given)
    assert said in str(refused.value)
