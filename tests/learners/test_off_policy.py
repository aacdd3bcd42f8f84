"""V-trace against its definition, against GAE, and against TorchRL; losses that agree with PPO's
where they should.
"""

import warnings
from typing import Any

import array_api_compat.torch
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flatout.learners.off_policy import Trust, decoupled_loss, effective_share, vtrace, vtrace_loss
from flatout.learners.ppo_math import following_values, gae, policy_loss
from rounding import assert_close

torch = pytest.importorskip("torch")
GAMMA = 0.97


def drawn(seed: int, steps: int = 13, envs: int = 5) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "reward": rng.normal(size=(steps, envs)),
        "value": rng.normal(size=(steps + 1, envs)),
        "terminated": rng.random((steps, envs)) < 0.15,
        "acting": rng.random((steps, envs)) < 0.85,
        "ratio": np.exp(rng.normal(scale=0.7, size=(steps, envs))),
    }


def by_definition(rows: dict[str, Any], trust: Trust) -> tuple[np.ndarray, np.ndarray]:
    """The target of every row as the sum that the paper writes, surprise by surprise."""
    steps, envs = rows["reward"].shape
    target, advantage = rows["value"][:-1].copy(), np.zeros((steps, envs))

    def following(t: int, k: int) -> float:
        return 0.0 if rows["terminated"][t, k] else rows["value"][t + 1, k]

    for k in range(envs):
        for start in range(steps):
            weight = 1.0
            for t in range(start, steps):
                if not rows["acting"][t, k]:
                    break
                surprise = rows["reward"][t, k] + GAMMA * following(t, k) - rows["value"][t, k]
                target[start, k] += weight * min(trust.rho, rows["ratio"][t, k]) * surprise
                if rows["terminated"][t, k]:
                    break
                weight *= GAMMA * trust.decay * min(trust.trace, rows["ratio"][t, k])
    for k in range(envs):
        for t in range(steps):
            if rows["acting"][t, k]:
                ahead = target[t + 1, k] - rows["value"][t + 1, k] if t + 1 < steps else 0.0
                goes_on = 0.0 if rows["terminated"][t, k] else 1.0
                then = rows["value"][t + 1, k] + trust.decay * ahead
                advantage[t, k] = (
                    rows["reward"][t, k] + GAMMA * goes_on * then - rows["value"][t, k]
                )
    return advantage, target


@settings(deadline=None)
@given(
    seed=st.integers(0, 10**6),
    rho=st.floats(0.3, 3),
    trace=st.floats(0.3, 2),
    decay=st.floats(0, 1),
)
def test_vtrace_is_the_sum_that_the_paper_writes(
    seed: int, rho: float, trace: float, decay: float
) -> None:
    rows, trust = drawn(seed), Trust(rho, trace, decay)
    made = vtrace(**rows, gamma=GAMMA, trust=trust, xp=np)
    advantage, target = by_definition(rows, trust)
    np.testing.assert_allclose(made.target, target, atol=1e-10)
    np.testing.assert_allclose(made.advantage, advantage, atol=1e-10)


def test_without_another_policy_it_is_gae() -> None:
    rows = drawn(3)
    rows |= {"ratio": np.ones_like(rows["ratio"]), "acting": np.ones_like(rows["acting"])}
    made = vtrace(**rows, gamma=GAMMA, trust=Trust(decay=0.9), xp=np)
    never = np.zeros_like(rows["terminated"])
    after = following_values(
        rows["value"][:-1], rows["value"][-1], rows["reward"], rows["terminated"], never, np
    )
    advantage, returns = gae(
        rows["reward"], rows["value"][:-1], after, rows["terminated"], GAMMA, 0.9, np
    )
    np.testing.assert_allclose(made.advantage, advantage, atol=1e-12)
    np.testing.assert_allclose(made.target, returns, atol=1e-12)


def test_a_row_that_does_not_act_ends_what_is_before_it_and_earns_nothing() -> None:
    """The same steps as a segment of their own, which ends with what the row saw."""
    rows = drawn(5, steps=8, envs=1)
    rows["acting"][:], rows["acting"][3] = True, False
    rows["terminated"][:] = False
    whole = vtrace(**rows, gamma=GAMMA, trust=Trust(), xp=np)
    before = {name: array[:4] if name == "value" else array[:3] for name, array in rows.items()}
    alone = vtrace(**before, gamma=GAMMA, trust=Trust(), xp=np)
    np.testing.assert_allclose(whole.target[:3], alone.target, atol=1e-12)
    assert whole.advantage[3] == 0 and whole.target[3] == rows["value"][3]


@pytest.mark.long
def test_vtrace_equals_torchrl() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torchrl.objectives.value.functional import vtrace_advantage_estimate
    rows = drawn(11, steps=20, envs=4)
    rows["acting"][:] = True
    last = np.zeros_like(rows["terminated"])
    last[-1] = True
    made = vtrace(**rows, gamma=GAMMA, trust=Trust(rho=1.0, trace=1.0, decay=1.0), xp=np)

    def column(array: np.ndarray) -> Any:  # (env, time, 1), as TorchRL has it
        return torch.as_tensor(np.ascontiguousarray(array.T[..., None]))

    value = column(rows["value"])
    advantage, target = vtrace_advantage_estimate(
        GAMMA, torch.log(column(rows["ratio"])), torch.zeros_like(column(rows["ratio"])),
        value[:, :-1], value[:, 1:],
        column(rows["reward"]), column(rows["terminated"] | last), column(rows["terminated"]),
        rho_thresh=torch.tensor(1.0, dtype=torch.float64),
        c_thresh=torch.tensor(1.0, dtype=torch.float64),
    )  # fmt: skip
    # TorchRL's advantages carry the weight of the loss
    weighted = np.minimum(rows["ratio"], 1.0) * made.advantage
    for ours, theirs in ((made.target, target), (weighted, advantage)):
        # it keeps gamma in float32, and multiplies up to 20 of them into sums of as many terms of
        # size 2
        assert_close(ours, theirs[..., 0].T.numpy(), roundings=20 * 20, size=2.0, dtype=np.float32)


def test_all_libraries_agree() -> None:
    rows, trust = drawn(7), Trust(1.2, 0.9, 0.95)
    expected = vtrace(**rows, gamma=GAMMA, trust=trust, xp=np)
    tensors = vtrace(
        **{name: torch.as_tensor(x) for name, x in rows.items()},
        gamma=GAMMA,
        trust=trust,
        xp=array_api_compat.torch,
    )
    arrays = vtrace(
        **{name: jnp.asarray(x) for name, x in rows.items()}, gamma=GAMMA, trust=trust, xp=jnp
    )
    for made in (tensors, arrays):
        for found, array in zip(
            made, expected, strict=True
        ):  # JAX counts in float32: 13 steps of some ten operations
            size = 1 + np.max(np.abs(array))
            assert_close(
                np.asarray(found), array, roundings=13 * 10 * 4, size=size, dtype=np.float32
            )


def test_decoupled_loss_is_ppos_where_the_proximal_policy_acted() -> None:
    rng = np.random.default_rng(0)
    new, old, advantage = rng.normal(size=(3, 200)) * 0.3
    made = decoupled_loss(new, old, old, advantage, 0.2, 1.0, np)
    assert made == pytest.approx(policy_loss(new, old, advantage, 0.2, np))


def test_decoupled_loss_weighs_by_how_likely_the_proximal_policy_was_to_act_so() -> None:
    new = proximal = np.log(np.array([0.5, 0.5]))
    behaviour = np.log(np.array([0.25, 1.0]))  # ratios 2, held at 1.5, and 0.5
    made = decoupled_loss(new, proximal, behaviour, np.array([1.0, 10.0]), 0.2, 1.5, np)
    assert made.loss == pytest.approx(-(1.5 * 1.0 + 0.5 * 10.0) / 2)


def test_vtrace_loss_has_the_policy_gradient() -> None:
    rng = np.random.default_rng(1)
    proximal, behaviour, advantage = rng.normal(size=(3, 50)).astype(np.float32)
    slope = jax.grad(lambda new: vtrace_loss(new, proximal, behaviour, advantage, 1.0, jnp).loss)(
        jnp.asarray(proximal)
    )
    expected = -np.minimum(np.exp(proximal - behaviour), 1) * advantage / 50
    assert_close(slope, expected, roundings=64, size=expected)  # products only


def test_effective_share() -> None:
    assert effective_share(np.ones(7), np) == pytest.approx(1)
    assert effective_share(np.array([1.0, 0, 0, 0]), np) == pytest.approx(0.25)
