"""The agent as all engines compute it: networks, the distribution they describe, and the loss of a
minibatch.
"""

from flatout.arrays import Array, ArrayTree, Namespace
from flatout.learners import ppo_math
from flatout.learners.environment import Actions, Box, MultiDiscrete
from flatout.learners.metrics import LossMetrics
from flatout.learners.rates import Program, Rates
from flatout.learners.trajectory import Batch
from flatout.policies.actions import CONTINUOUS, Categorical, Distribution, MultiCategorical
from flatout.policies.network import Network, actor, critic
from flatout.policies.per_asset import actor_of_assets, critic_of_assets, spread_deviations


def distribution_of(program: Program, network: Network, head: Array, xp: Namespace) -> Distribution:
    """The distribution that the actor's output describes."""
    actions, layout = program.environment.actions, program.layout
    if not isinstance(actions, Box):
        return choices_of(actions, head)
    log_std = network.log_std
    if layout:
        log_std = spread_deviations(log_std, layout, xp)
    return CONTINUOUS[program.distribution](head, log_std)


def choices_of(actions: Actions, head: Array) -> Categorical | MultiCategorical:
    """The distribution of choices that a network's output describes."""
    if isinstance(actions, MultiDiscrete):
        return MultiCategorical(head, actions.choices)
    return Categorical(head)


def actor_of(
    program: Program, rates: Rates, network: Network, observation: Array, xp: Namespace
) -> Distribution:
    """What the policy would do: the distribution of its actions, given what it sees."""
    gates, layout = rates.gates if program.gated else None, program.layout
    head = (
        actor_of_assets(network, observation, layout, program.activation, xp=xp, gates=gates)
        if layout
        else actor(network, observation, program.activation, xp=xp, gates=gates)
    )
    return distribution_of(program, network, head, xp)


def critic_of(
    program: Program, rates: Rates, network: Network, observation: Array, xp: Namespace
) -> Array:
    """What the critic expects to be earned from here on, given what it sees."""
    gates, layout = rates.gates if program.gated else None, program.layout
    if layout:
        return critic_of_assets(
            network, observation, layout, program.activation, xp=xp, gates=gates
        )
    return critic(network, observation, program.activation, xp=xp, gates=gates)


def bound_action(program: Program, policy: Distribution, raw: Array, xp: Namespace) -> Array:
    """What the environment gets for a drawn action: the same within the bounds of its space.

    Bounds are filled in where the action is: nothing is uploaded.
    """
    actions = program.environment.actions
    if not isinstance(actions, Box):
        return raw
    first = raw[..., :1]
    low, high = (
        xp.concat(
            [xp.full_like(first, value) for value in (bound if len(set(bound)) > 1 else bound[:1])],
            axis=-1,
        )
        for bound in (actions.low, actions.high)
    )
    return policy.bounded(raw, low, high, xp)


def loss_of(
    program: Program, data: ArrayTree, rates: Rates, network: Network, batch: Batch, xp: Namespace
) -> tuple[Array, LossMetrics]:
    """PPO's loss of some transitions, and what it is made of."""
    observation = (
        program.environment.observe(batch.seen, data) if program.index_only else batch.seen
    )
    policy = actor_of(program, rates, network, observation, xp=xp)
    value = critic_of(program, rates, network, observation, xp=xp)
    advantage = xp.where(
        rates.normalise_advantage, ppo_math.normalise(batch.advantage, xp), batch.advantage
    )
    surrogate = ppo_math.policy_loss(
        policy.log_prob(batch.raw, xp), batch.log_prob, advantage, rates.clip, xp=xp
    )
    error = ppo_math.value_loss(value, batch.value, batch.returns, rates.value_clip, xp=xp)
    entropy = xp.mean(policy.entropy(batch.raw, xp))
    loss = surrogate.loss + rates.value * error - rates.entropy * entropy
    return loss, LossMetrics(
        policy_loss=surrogate.loss,
        value_loss=error,
        entropy=entropy,
        approx_kl=surrogate.approx_kl,
        clip_fraction=surrogate.clip_fraction,
    )
