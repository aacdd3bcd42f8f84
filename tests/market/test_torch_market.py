"""`TorchMarket`: the NumPy market in tensors, without ever waiting for the device."""

from typing import Any

import numpy as np
import pytest
from small_markets import WHOLE, biting_market, float32_bars, random_actions, reward_size, walk

from rounding import assert_close

torch = pytest.importorskip("torch")

import array_api_compat.torch as xp  # noqa: E402

from flatout.arrays import map_leaves  # noqa: E402
from flatout.market import episode  # noqa: E402
from flatout.market.episode import OBSERVATION_LIMIT  # noqa: E402
from flatout.market.market import Market  # noqa: E402
from flatout.market.torch_market import HostSyncs, TorchMarket  # noqa: E402
from scenarios import BAR_ROUNDINGS  # noqa: E402

# over an episode of 48 bars; ten times, for what was cut or averaged may have grown
CHAIN = 10 * 48 * BAR_ROUNDINGS


def started(market: Market, noise: np.ndarray, **options: Any) -> TorchMarket:
    """A market whose accounts start where the noise says."""
    found = TorchMarket(market, len(noise), **options)
    found.state = episode.reset(
        torch.as_tensor(noise, dtype=found.dtype), market.shape, found.rules, xp
    )
    return found


@pytest.mark.parametrize("action", ["trade", "weights", "direction_amount", "discrete"])
def test_equals_numpy(action: str) -> None:
    """Two episodes in float64 and a restart between them; every episode of this market starts at
    the same bar.
    """
    market = biting_market(60, action=action, episode_bars=WHOLE)
    steps = 2 * (59 - 11)
    actions = random_actions(market, steps, 6)
    expected = walk(market, actions, np.zeros((steps + 1, 6)))
    found = started(market, np.zeros(6), dtype=torch.float64)
    sizes = np.max([reward_size(state, market.rules) for state in expected.states])
    for k in range(steps):
        result = found.step(torch.as_tensor(actions[k], dtype=torch.float64))
        np.testing.assert_array_equal(result.terminated, expected.terminated[k])
        np.testing.assert_array_equal(result.truncated, expected.truncated[k])
        assert_close(
            result.final_obs, expected.observations[k], roundings=CHAIN, size=OBSERVATION_LIMIT
        )
        assert_close(result.reward, expected.rewards[k], roundings=CHAIN, size=sizes)
    assert expected.truncated.sum() >= 6


@pytest.mark.parametrize("action", ["trade", "weights", "direction_amount", "discrete"])
def test_equals_numpy_in_single_precision(action: str) -> None:
    """Bar by bar: see `float32_bars`."""
    market = biting_market(60, action=action, episode_bars=15)
    bars = float32_bars(market)
    found = TorchMarket(market, len(bars.action))
    found.state = map_leaves(torch.as_tensor, bars.state)
    result = found.step(torch.as_tensor(bars.action))
    bars.check(result.final_obs, result.reward, result.terminated, result.truncated)


def test_different_starts() -> None:
    market = biting_market(episode_bars=20)
    noise = np.random.default_rng(0).random(5)
    actions = random_actions(market, 19, 5)
    expected = walk(market, actions, np.tile(noise, (20, 1)))
    found = started(market, noise, dtype=torch.float64)
    assert len(set(found.state.t.tolist())) > 2
    for k, action in enumerate(actions):
        result = found.step(torch.as_tensor(action, dtype=torch.float64))
        assert_close(
            result.final_obs, expected.observations[k], roundings=CHAIN, size=OBSERVATION_LIMIT
        )


def test_accounts_that_end_restart_at_once() -> None:
    market = biting_market(episode_bars=5)
    found = TorchMarket(market, 8, seed=1)
    ends = 0
    for action in random_actions(market, 30, 8):
        result = found.step(torch.as_tensor(action))
        ended = result.terminated | result.truncated
        same = (result.final_obs == result.obs).all(dim=1)
        assert same[~ended].all()
        assert not same[ended].any()
        assert (found.state.account.cash[ended] == 1).all()
        assert (found.state.t < found.state.last).all()
        ends += int(ended.sum())
    assert ends >= 8 * 30 // 5


def test_seeds() -> None:
    market = biting_market(episode_bars=5)
    a, b = TorchMarket(market, 64, seed=3), TorchMarket(market, 64, seed=3)
    assert torch.equal(a.state.t, b.state.t)
    assert torch.equal(a.reset(seed=9), b.reset(seed=9))
    assert not torch.equal(a.reset(), a.reset())
    assert not torch.equal(a.reset(seed=9), a.reset(seed=10))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_precision(dtype: Any) -> None:
    found = TorchMarket(biting_market(), 2, dtype=dtype)
    result = found.step(torch.zeros(2, 3, dtype=dtype))
    state = found.state
    assert {
        x.dtype for x in (result.obs, result.reward, *state.account, *state.marks, state.close)
    } == {dtype}
    assert result.terminated.dtype == torch.bool


def test_no_gradient_is_recorded() -> None:
    found = TorchMarket(biting_market(), 2)
    assert not found.step(torch.zeros(2, 3, requires_grad=True)).reward.requires_grad


# --- the device is never waited for ---------------------------------------------------------------


@pytest.mark.parametrize(
    "wait",
    [
        lambda x: x.sum().item(),
        lambda x: bool((x > 0).any()),
        lambda x: x[x > 0],
        lambda x: x.nonzero(),
        lambda x: x + torch.tensor([1.0]),
        lambda x: x.to(torch.device("meta")),
        lambda x: torch.where(x > 0, x, torch.tensor(0.0)),
    ],
    ids=["item", "bool", "mask", "nonzero", "upload", "move", "scalar"],
)
def test_the_detector_detects(wait: Any) -> None:
    with HostSyncs() as syncs:
        wait(torch.ones(3))
    assert syncs.found


@pytest.mark.parametrize("action", ["trade", "weights", "direction_amount", "discrete"])
@pytest.mark.parametrize("fill", ["next_open", "next_close", "same_close"])
def test_step_never_waits_for_the_device(action: str, fill: str) -> None:
    """Restarts and the final observation included."""
    found = TorchMarket(biting_market(action=action, fill=fill, episode_bars=3), 4)
    actions = torch.as_tensor(random_actions(found.market, 6, 4))
    with HostSyncs() as syncs:
        results = [found.step(action) for action in actions]
        assert results[-1].final_obs.shape == (4, found.market.observation_size)
    assert syncs.found == []
    assert any(result.truncated.any() for result in results)


def test_step_makes_no_tensor_from_a_python_number() -> None:
    """`where(..., 1.0)` would fill a new tensor on the device in every bar.

    That waits for nothing, but each is a kernel launch of its own.
    """
    found = TorchMarket(biting_market(), 4)
    with HostSyncs(frozenset({"scalar_tensor"})) as syncs:
        found.step(torch.zeros(4, 3))
    assert syncs.found == []


def test_everything_lives_on_the_device_asked_for() -> None:
    """The meta device holds no values, so a single tensor that was left on the host would be an
    error.
    """
    market = biting_market(episode_bars=10)
    assert TorchMarket(market, 3, device=torch.device("cpu")).reset().device.type == "cpu"
    found = TorchMarket(market, 3)
    found.device = torch.device("meta")
    found.tape, found.rules, found.state = (
        map_leaves(lambda x: x.to("meta"), tree) for tree in (found.tape, found.rules, found.state)
    )
    found._noise = lambda: torch.empty(3, device="meta")  # generators do not exist there
    result = found.step(torch.empty(3, 3, device="meta"))
    assert {
        x.device.type for x in (result.obs, result.reward, result.truncated, result.final_obs)
    } == {"meta"}
    assert {x.device.type for x in found.state.account} == {"meta"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_the_compiled_step_equals_the_eager_one() -> None:
    """Twenty bars with restarts, in float64; fusing may round differently, no more."""
    market = biting_market(60, episode_bars=7)
    eager, fused = (
        TorchMarket(market, 5, dtype=torch.float64, seed=1, compile=fuse) for fuse in (False, True)
    )
    for action in (
        torch.rand(20, 5, market.action_size, generator=torch.Generator().manual_seed(0)).double()
        * 2
        - 1
    ):
        one, other = eager.step(action), fused.step(action)
        assert torch.equal(other.truncated, one.truncated)
        assert_close(other.obs, one.obs, roundings=CHAIN, size=OBSERVATION_LIMIT)
        assert_close(other.reward, one.reward, roundings=CHAIN, size=6.0)  # see `reward_size`
