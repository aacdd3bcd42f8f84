"""What pathwise computes, written once for PyTorch and JAX: the gradient of what a window of bars
earned, through orders, fills and costs, in the place of PPO's guess by exploration.

The market does not react to an agent beyond its costs, and the environment is differentiable: so
one pass back through a window of `n_steps` bars says how each weight of the policy would have
changed what all accounts earned. States are carried from window to window and cut from the
gradient there. What lies beyond a window is valued by the critic, which learns from TD(lambda)
targets; a `value` weight of 0 leaves it out.

Rewards are counted in basis points for the actor and in per cent for the critic, so that Adam's
epsilon is small beside their gradients. Both are clipped apart. A gradient that is not finite is
skipped and counted.

How the bars of a window are driven, when the critic is asked and who differentiates is the
engines' business.
"""

from typing import NamedTuple

from flatout.arrays import Array, ArrayTree, Namespace, freeze, leaves_of, map_leaves
from flatout.learners.agent import actor_of, bound_action, critic_of
from flatout.learners.metrics import PathwiseMetrics
from flatout.learners.rates import Program, Rates
from flatout.learners.trajectory import (
    Episodes,
    Transition,
    compute_advantages,
    count_episodes,
    rollout_metrics,
)
from flatout.policies.network import Network, Perceptron

ACTOR_UNIT, CRITIC_UNIT = 1e2, 1.0


class Window(NamedTuple):
    """Where the accounts are after a window, and what happened in it; no gradient goes through."""

    environment: ArrayTree
    view: ArrayTree
    episodes: Episodes
    terms: Array  # (term,) means of the reward's terms
    steps: Transition  # rewards and final values in the critic's unit


class WindowNoise(NamedTuple):
    """All that is random in a window; (step, env, ...) each."""

    action: Array
    luck: ArrayTree
    feature: Array


class WindowCarry(NamedTuple):
    """What goes from one bar to the next."""

    environment: ArrayTree
    view: ArrayTree
    episodes: Episodes
    sums: tuple[Array, ...]
    discount: Array  # (env,) of what is earned from here on, since the window or the episode began


class Passage(NamedTuple):
    """One bar of all accounts."""

    step: Transition  # without the value of last observations, and without the actor's output
    arrived: ArrayTree  # views of where it led, before any restart
    discount: Array  # of what is earned in it


class CriticLoss(NamedTuple):
    """How far the critic is off; scalars."""

    error: Array  # its mean square
    explained: Array  # share of the targets' variance that it knew


def open_window(
    environment: ArrayTree, view: ArrayTree, episodes: Episodes, terms: int, xp: Namespace
) -> WindowCarry:
    """What the first bar of a window starts from; the reward has so many terms."""
    zeros = xp.zeros_like(episodes.earned)
    return WindowCarry(
        environment=environment,
        view=view,
        episodes=episodes._replace(ended=zeros, ended_earned=zeros, ended_length=zeros),
        sums=(zeros,) * terms,
        discount=xp.ones_like(zeros),
    )


def pass_bar(
    program: Program,
    data: ArrayTree,
    rates: Rates,
    network: Network,
    carry: WindowCarry,
    noise: WindowNoise,
    xp: Namespace,
) -> tuple[WindowCarry, Passage]:
    """The policy acts once in all environments; `noise` is that of one step."""
    env = program.environment
    seen = env.observe(carry.view, data)
    shaken = seen + rates.feature_noise * noise.feature
    policy = actor_of(program, rates, network, shaken, xp=xp)
    raw = policy.mode(xp) + rates.action_noise * noise.action
    environment, step = env.step(
        carry.environment,
        bound_action(program, policy, raw, xp),
        noise=noise.luck,
        data=data,
        rates=rates.environment,
    )
    ended = step.terminated | step.truncated
    after = WindowCarry(
        environment=environment,
        view=env.view(environment, data, rates.environment),
        episodes=count_episodes(carry.episodes, freeze(step.reward), ended, xp),
        sums=tuple(
            total + freeze(term) for total, term in zip(carry.sums, step.terms, strict=True)
        ),
        discount=xp.where(ended, xp.ones_like(carry.discount), carry.discount * rates.gamma),
    )
    passed = Transition(
        seen=seen,
        raw=(),
        head=(),
        reward=CRITIC_UNIT * step.reward,
        terminated=step.terminated,
        truncated=step.truncated,
        final=xp.zeros_like(step.reward),
    )
    arrived = env.view(step.arrived, data, rates.environment)
    return after, Passage(passed, arrived, carry.discount)


def count_gain(rates: Rates, bar: Passage, final: Array, xp: Namespace) -> tuple[Array, Transition]:
    """What a bar adds to what its window is worth, (env,), and what the critic learns from it;
    `final` is what the critic says of where it led, which counts where an episode was truncated.
    """
    truncated = xp.astype(bar.step.truncated, final.dtype)
    gain = bar.discount * (bar.step.reward + rates.gamma * truncated * final)
    return gain, map_leaves(freeze, bar.step._replace(final=final))


def close_window(
    program: Program,
    end: WindowCarry,
    gains: Array,
    steps: Transition,
    beyond: Array,
    xp: Namespace,
) -> tuple[Array, Window]:
    """What the accounts lost per bar of a window, in basis points, discounted: from the (step, env)
    gains of its bars, and what the critic says of where they are at its end.
    """
    gained = xp.mean(xp.sum(gains, axis=0) + end.discount * beyond) / program.n_steps
    terms = end.discount[:0]
    if end.sums:
        terms = xp.stack([xp.mean(total) for total in end.sums]) / program.n_steps
    window = Window(end.environment, end.view, end.episodes, terms, steps)
    return -gained * (ACTOR_UNIT / CRITIC_UNIT), map_leaves(freeze, window)


def lose_by_critic(
    program: Program,
    data: ArrayTree,
    rates: Rates,
    network: Network,
    window: Window,
    xp: Namespace,
) -> tuple[Array, CriticLoss]:
    """The critic's squared error beside TD(lambda) targets, for the gradient and for the
    metrics.
    """
    value = critic_of(program, rates, network, window.steps.seen, xp=xp)
    known = freeze(value)
    view = program.environment.observe(window.view, data)
    last = freeze(critic_of(program, rates, network, view, xp=xp))
    _, returns = compute_advantages(
        rates, window.steps, known, last, reward=window.steps.reward, xp=xp
    )
    error = xp.mean((value - returns) ** 2)
    explained = 1 - xp.var(returns - known) / xp.clip(xp.var(returns), 1e-12, None)
    return error, CriticLoss(freeze(error), explained)


def join_gradients(
    rates: Rates, actor: Perceptron, critic: Perceptron, log_std: Array, xp: Namespace
) -> tuple[Network, Array]:
    """Both gradients as one of the whole network, each clipped by its own norm, and the norm of the
    actor's, which is not finite if any number of either is not. Deviations have none.
    """

    def clip(tree: Perceptron) -> tuple[Perceptron, Array]:
        norm = xp.sqrt(sum(xp.sum(leaf * leaf) for leaf in leaves_of(tree)))
        factor = xp.clip(rates.max_grad_norm / (norm + 1e-6), None, 1.0)
        return map_leaves(lambda leaf: factor * leaf, tree), norm

    one, norm = clip(actor)
    other, size = clip(critic)
    joined = Network(actor=one, critic=other, log_std=xp.zeros_like(log_std))
    return joined, xp.where(xp.isfinite(size), norm, size - size)


def window_metrics(
    rates: Rates,
    rate: Array,
    loss: Array,
    judged: CriticLoss,
    norm: Array,
    window: Window,
    xp: Namespace,
) -> Array:
    """The row of an update's metrics, in the columns of `metrics.metric_names`."""
    finite = xp.isfinite(norm)
    learned = PathwiseMetrics(
        policy_loss=loss,
        value_loss=judged.error,
        skipped=1 - xp.astype(finite, norm.dtype),
        grad_norm=xp.where(finite, norm, xp.zeros_like(norm)),
    )
    rest = rollout_metrics(
        rate,
        xp.ones_like(rate),
        explained=judged.explained,
        deviation=rates.action_noise,
        episodes=window.episodes,
        reward=window.steps.reward / CRITIC_UNIT,
        xp=xp,
    )
    return xp.concat([xp.stack([*learned, *rest]), window.terms])
