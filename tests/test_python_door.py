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
import torch

import flatout
from flatout.bars.synthetic import RandomWalk
from flatout.bars.write import to_table
from flatout.errors import BundleError, FlatoutError
from flatout.evaluation.baselines import BuyAndHold
from flatout.evaluation.saved_policy import SavedPolicy
from flatout.settings.loading import resolve_settings
from flatout.training.result import TrainingResult
from flatout.training.train import prepare_new
from small_bundles import bundle_of

NO_PATH = "which is no path; give that of a file or folder"
POLICY = SavedPolicy(bundle_of(), Path("learned"))
SIZE = POLICY.bundle.observation_size
HOLD = BuyAndHold()
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


MARKET = flatout.build_market(
    RandomWalk(n_bars=200, seed=1, symbols=("AAA", "BBB")).panel(),
    {"features": {"indicators": ["return_1"]}},
)
SPOT = flatout.MarketEnv(MARKET)
TENSORS = flatout.TorchMarket(MARKET, n_envs=3)


def make_ppo(**given: Any) -> flatout.PPO:
    """A model of the smallest environment."""
    return flatout.PPO("MlpPolicy", "CartPole-v1", n_steps=32, batch_size=32, device="cpu", **given)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: flatout.run_study(name=None), "`name` is None: give a text"),
        (lambda: flatout.run_study(name=" "), "`name` is ' ': give a text"),
        (lambda: flatout.backtest(MARKET, None), "the policy is None: give a baseline, a saved"),
        (lambda: flatout.backtest(MARKET, 3), "the policy is 3: give a baseline, a saved"),
        (lambda: flatout.backtest(MARKET, lambda o: o), "an array of 1 accounts x 2 assets"),
        (lambda: flatout.backtest(MARKET, lambda o: "buy"), "the policy gave 'buy': give"),
        (lambda: flatout.backtest(MARKET, lambda o: [0.5, 0.5]), "1 accounts x 2 assets"),
        (lambda: flatout.backtest(MARKET, HOLD, accounts="x"), "accounts is 'x': give a whole"),
        (lambda: flatout.backtest(MARKET, HOLD, accounts=0), "accounts is 0: give a whole number"),
        (lambda: flatout.backtest(MARKET, HOLD, first="x"), "first is 'x': give a row of the"),
        (lambda: flatout.TorchMarket(3), "the market is of type int: give what"),
        (lambda: flatout.TorchMarket(MARKET, device="cuda:99"), "device is 'cuda:99', which"),
        (lambda: flatout.TorchMarket(MARKET, device="x"), "device is 'x', which PyTorch does not"),
        (lambda: flatout.TorchMarket(MARKET, n_envs=0), "n_envs is 0: give a whole number, 1 to"),
        (lambda: flatout.TorchMarket(MARKET, dtype=float), "give torch.float32 or torch.float64"),
        (lambda: TENSORS.step(torch.zeros(2, 3)), "the action is (2, 3): give a tensor of"),
        (lambda: TENSORS.step(3), "the action is 3: give a tensor of the shape (3, 3)"),
        (lambda: flatout.MarketVectorEnv(MARKET, 0), "num_envs is 0: give a whole number, 1 to"),
        (lambda: flatout.MarketVectorEnv(MARKET, "x"), "num_envs is 'x': give a whole number"),
        (lambda: flatout.MarketEnv(fitted=3), "fitted is 3: give a FittedRecipe"),
        (lambda: flatout.build_market(MARKET.panel, fitted=3), "fitted is 3: give a FittedRecipe"),
        (lambda: (SPOT.reset(), SPOT.step("x")), "the action is 'x': give numbers in the"),
        (lambda: flatout.read_bars("x.csv", columns=3), "columns are 3: give what is called how"),
        (lambda: flatout.read_bars("x.csv", columns={"a": 3}), "columns are {'a': 3}: give"),
        (lambda: flatout.read_bars("x.csv", calendar=3), "calendar is 3: give a text, as in"),
        (lambda: flatout.read_bars("x.csv", bar=3), "3 is not a bar size"),
        (lambda: flatout.train(bar=""), "'' is not a bar size. Write a number and a unit"),
        (lambda: flatout.run_study(bar=" "), "' ' is not a bar size"),
        (lambda: flatout.load_settings(overrides=[3]), "overrides are [3]: give texts, as in"),
        (lambda: flatout.load_settings(overrides="a=b"), "overrides are 'a=b': give texts, as in"),
        (lambda: flatout.load_settings(overrides=3), "overrides are 3: give texts, as in"),
        (lambda: flatout.train(settings=3), "settings are of type int: give a path, a dict"),
        (lambda: make_ppo(policy_kwargs=3), "policy_kwargs is 3; it must be a dict, such as"),
        (lambda: make_ppo(seed="a"), "seed is 'a'; it must be a whole number, or None"),
        (lambda: make_ppo(verbose="a"), "verbose is 'a'; it must be 0, 1 or 2"),
        (lambda: make_ppo(overlap=3), "overlap is 3; it must be a flatout.Overlap"),
        (lambda: make_ppo().learn("x"), "total_timesteps is 'x'; it must be a whole number"),
        (lambda: make_ppo().set_random_seed("x"), "seed is 'x'; it must be a whole number"),
        (lambda: flatout.AsyncioVectorEnv(3), "makers are 3: give a list of functions, each of"),
        (lambda: flatout.AsyncioVectorEnv([3]), "maker 0 is 3: give a list of functions, each of"),
        (lambda: flatout.AsyncioVectorEnv([]), "was given no makers: give a list of functions"),
        (lambda: flatout.Overlap(segment="a"), "segment is 'a': give a whole number"),
        (lambda: flatout.Overlap(segment=True), "segment is True: give a whole number"),
        (lambda: flatout.Overlap(serial=3), "serial is 3: give True or False"),
        (lambda: flatout.Overlap(rho="a"), "rho is 'a': give a number"),
        (lambda: flatout.Overlap(trace=-1), "trace -1: none of them may be below 0"),
        (lambda: flatout.Overlap(reuse=3), "reuse is 3: give a Reuse"),
        (lambda: flatout.Overlap(care=3), "care is 3: give a Care"),
        (lambda: flatout.Overlap(plain="x"), "plain is 'x': give one of auto, inline, thread"),
        (lambda: flatout.Settings(trian={}), "no such setting; did you mean train?"),
        (lambda: flatout.Settings(train={"n_env": 3}), "did you mean train.n_envs?"),
    ],
)  # fmt: skip
def test_what_is_of_another_kind_is_refused_in_a_sentence(
    call: Callable[[], Any], said: str
) -> None:
    with pytest.raises(FlatoutError) as refused:
        call()
    assert said in str(refused.value)


def test_orders_of_all_accounts_may_be_one_row() -> None:
    alone = flatout.backtest(MARKET, lambda moment: [[0.1, 0.0]], accounts=2)
    both = flatout.backtest(MARKET, lambda moment: [[0.1, 0.0]] * 2, accounts=2)
    np.testing.assert_array_equal(alone.equity, both.equity)


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
