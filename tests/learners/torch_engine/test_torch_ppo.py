"""The PyTorch learner: nothing waits for the host, fusing changes rounding only, knobs are live."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from small_learners import assert_learned_alike

torch = pytest.importorskip("torch")

from flatout.arrays import map_leaves, to_numpy  # noqa: E402
from flatout.learners.metrics import metric_names  # noqa: E402
from flatout.learners.rates import program_of, rates_of  # noqa: E402
from flatout.learners.torch_engine import compiled  # noqa: E402
from flatout.learners.torch_engine.compiled import FusedFunction, choose_kernels  # noqa: E402
from flatout.learners.torch_engine.market_environment import TorchMarketEnvironment  # noqa: E402
from flatout.learners.torch_engine.ppo import PLAIN, TorchLearner  # noqa: E402
from flatout.learners.torch_engine.rollout import Kernels  # noqa: E402
from flatout.learners.torch_engine.threads import limit_threads  # noqa: E402
from flatout.market.torch_market import HostSyncs  # noqa: E402
from flatout.policies.network import new_network  # noqa: E402
from flatout.settings.train import TrainSettings  # noqa: E402
from market.small_markets import biting_market  # noqa: E402

TRAIN: dict[str, Any] = {
    "n_envs": 8,
    "n_steps": 12,
    "minibatches": 3,
    "epochs": 2,
    "hidden": (8, 8),
}
MARKET = biting_market(80, episode_bars=7)


def learner(
    kernels: Any = None,
    seed: int = 0,
    index_only: bool = False,
    dtype: str = "float32",
    **changes: Any,
) -> TorchLearner:
    settings = TrainSettings(**{**TRAIN, **changes})
    tape, rules = MARKET.arrays(dtype)
    program = program_of(
        settings, TorchMarketEnvironment(MARKET.shape), settings.n_envs or 0, index_only=index_only
    )
    rates = rates_of(settings, 10, map_leaves(np.asarray, rules))
    data = map_leaves(torch.as_tensor, tape)
    network = new_network(program.sizes, seed, settings.log_std)
    return TorchLearner(
        program, data, rates, network, seed, kernels=kernels, dtype=getattr(torch, dtype)
    )


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Several would wait for each other for most of the time on a busy machine; see the test of
    threads below.
    """
    usual = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(usual)


@pytest.mark.parametrize(
    "changes",
    [{}, {"index_only": True}, {"normalise_reward": True}, {"distribution": "squashed_gaussian"}],
)
def test_an_update_never_waits_for_the_device(changes: dict[str, Any]) -> None:
    one = learner(**changes)
    one.may_ask = False  # as on a GPU
    one.update()  # tensors are made at the first use
    noise = one.draw()
    with HostSyncs() as syncs, torch.no_grad():
        steps, _ = one.run_rollout(noise)
        batch = one.batch_of(steps)
    one.learn(batch, noise.shuffle, 1e-3)
    assert syncs.found == []
    assert bool(steps.truncated.any())


def test_learning_asks_the_device_once_per_epoch_and_only_for_the_limit() -> None:
    """Adam reads its own counter on a CPU; on a GPU that stays on the device."""
    for target, epochs in ((None, 0), (10.0, 2)):
        one = learner(target_kl=target)
        one.update()
        noise = one.draw()
        with torch.no_grad():
            batch = one.batch_of(one.run_rollout(noise)[0])
        with HostSyncs() as syncs:
            one.learn(batch, noise.shuffle, 1e-3)
        asked = [
            name for name in syncs.found if "_local_scalar_dense" in name or "is_nonzero" in name
        ]
        assert len(asked) == epochs, syncs.found


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_is_never_waited_for() -> None:
    settings = TrainSettings(**TRAIN)
    tape, rules = MARKET.arrays()
    program = program_of(settings, TorchMarketEnvironment(MARKET.shape), 8)
    data = map_leaves(partial(torch.as_tensor, device="cuda"), tape)
    one = TorchLearner(
        program,
        data,
        rates_of(settings, 10, map_leaves(np.asarray, rules)),
        new_network(program.sizes, 0),
        0,
        "cuda",
    )
    one.update()
    noise = one.draw()
    torch.cuda.set_sync_debug_mode("error")
    try:
        one.update(noise)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_buffers_are_made_once() -> None:
    one = learner()
    one.update()
    first = one.buffers
    assert first is not None
    one.update()
    assert one.buffers is not None
    assert all(a is b for a, b in zip(first[:6], one.buffers[:6], strict=True))


def test_equal_seeds_learn_alike_and_others_do_not() -> None:
    a, b, other = learner(), learner(), learner(seed=1)
    rows = [torch.stack([one.update() for _ in range(3)]) for one in (a, b, other)]
    assert torch.equal(rows[0], rows[1])
    assert not torch.allclose(rows[0], rows[2])


def test_state_can_be_taken_out_and_put_back() -> None:
    one, other = learner(normalise_reward=True), learner(normalise_reward=True, seed=5)
    one.update()
    other.load(map_leaves(lambda x: to_numpy(x).copy(), one.state))
    assert torch.equal(one.update(), other.update())
    assert other.seed == 0


KNOBS: dict[str, Any] = {
    "epochs": 1, "learning_rate": 1e-2, "final_rate_share": 0.1, "gamma": 0.5, "gae_lambda": 0.5,
    "clip": 0.001,
    "value_clip": 0.01, "entropy": 0.1, "value": 2.0, "max_grad_norm": 0.01, "target_kl": 1e-6,
    "log_std": -1.0,
    "normalise_advantage": False, "normalise_reward": True, "n_envs": 4, "n_steps": 6,
    "minibatches": 2,
    "hidden": (4,), "activation": "relu", "distribution": "squashed_gaussian",
}  # fmt: skip


def test_every_setting_is_a_knob_of_this_file() -> None:
    """Except those of pathwise and the network's kind: see test_torch_pathwise.py."""
    pathwise = {"algorithm", "action_noise", "feature_noise", "weight_decay"}
    others = {"engine", "timesteps", "seeds", "network"} | pathwise
    assert {*KNOBS} | others == set(TrainSettings.model_fields)


@pytest.fixture(scope="module")
def usual() -> TorchLearner:
    return advanced(learner(clip=0.05))


def advanced(one: TorchLearner) -> TorchLearner:
    for _ in range(3):
        one.update()
    return one


@pytest.mark.parametrize("name", KNOBS)
def test_every_knob_is_live(usual: TorchLearner, name: str) -> None:
    other = advanced(learner(**{"clip": 0.05, name: KNOBS[name]}))
    pairs = [(to_numpy(a), to_numpy(b)) for a, b in zip(usual.weights, other.weights, strict=False)]
    assert any(a.shape != b.shape or np.abs(a - b).max() > 1e-6 for a, b in pairs)


def test_a_policy_that_moved_too_far_stops() -> None:
    one = learner(target_kl=1e-9)
    before = [weight.detach().clone() for weight in one.weights]
    row = one.update()
    assert float(row[metric_names(one.program).index("epochs")]) == 1
    moved = max(
        np.abs(to_numpy(a) - to_numpy(b)).max() for a, b in zip(before, one.weights, strict=True)
    )
    # the first minibatch has not moved yet and may learn, the others may not
    assert 0 < moved < 2 * 3e-4


def test_threads_are_few_only_while_they_are_not_needed() -> None:
    usual = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        cpu = torch.device("cpu")
        with limit_threads(small=True, device=cpu):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
        with limit_threads(small=False, device=cpu):
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(usual)


# --- fusing ---------------------------------------------------------------------------------------


def test_what_is_not_worth_it_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(compiled.SWITCH, raising=False)
    monkeypatch.setattr(compiled, "can_compile", lambda device: device == "cpu")
    assert choose_kernels(PLAIN, False, "cpu") is PLAIN
    assert all(isinstance(kernel, FusedFunction) for kernel in choose_kernels(PLAIN, True, "cpu"))
    assert choose_kernels(PLAIN, True, "mps") is PLAIN
    monkeypatch.setenv(compiled.SWITCH, "0")
    assert choose_kernels(PLAIN, True, "cpu") is PLAIN
    monkeypatch.setenv(compiled.SWITCH, "1")
    assert all(isinstance(kernel, FusedFunction) for kernel in choose_kernels(PLAIN, False, "cpu"))


def test_a_compiler_that_fails_costs_a_line(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """A real failure: there is no such compiler."""
    from torch._inductor import config

    kernels = Kernels(*(FusedFunction(kernel) for kernel in PLAIN))
    with config.patch(
        {"cpp.cxx": ("/nowhere/g++",), "fx_graph_cache": False, "force_disable_caches": True}
    ):
        row = learner(kernels, n_steps=3, minibatches=2).update()
    assert [kernel.current for kernel in kernels] == list(PLAIN)
    message = capsys.readouterr().err
    assert message.count("torch.compile failed (") == 2
    assert torch.equal(row, learner(n_steps=3, minibatches=2).update())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_the_fused_step_learns_alike() -> None:
    """In float64: in float32 an order may fall on the other side of a lot, and Adam enlarges what
    is rounded off.
    """
    kernels, plain = Kernels(*(FusedFunction(kernel) for kernel in PLAIN)), learner(dtype="float64")
    one = learner(kernels, dtype="float64")
    one.warm_up()
    for k in range(4):
        found, expected = ({"row": to_numpy(x.update())} for x in (one, plain))
        assert_learned_alike(found, expected, 2 * 3 * (1 + k), 3e-4)
    assert all(kernel.current is not kernel.plain for kernel in kernels)
