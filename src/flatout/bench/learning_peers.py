"""Other trainers in `flatout bench learn`: Stable-Baselines3 and SBX on the bars that teach, in
flatout's vector environment, judged as flatout's own learners are.

Nothing of them is imported before a row of theirs runs.
"""

import copy
import importlib.util
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flatout.arrays import NumpyArray
from flatout.bench.finrl_peer import follow_finrl
from flatout.bench.learning_quality import Act, Follow, Ground, describe, trade_outside
from flatout.bench.learning_summary import next_points
from flatout.bench.workload import LearnerShape
from flatout.foreign import JsonTable
from flatout.market.market import Market

if TYPE_CHECKING:
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

SECONDS = 180.0  # of learning, after which a peer's row ends
PLAIN_ENVS = 8
INSTALL = "not installed: pip install 'flatout[bench]'"
GIVE = (
    "not installed: --finrl PYTHON, an interpreter that has finrl==0.3.7, torch, torch_geometric "
    "and tqdm"
)
NewModel = Callable[[Market, int], "OnPolicyAlgorithm"]  # of a market and a seed


class PeerLimits(NamedTuple):
    """After how much learning a peer's row ends, whichever comes first."""

    samples: int
    seconds: float = SECONDS


class LearningPeer(NamedTuple):
    """Another trainer, and how many samples end within about three minutes on two cores."""

    module: str  # that must be there
    samples: int
    make: NewModel


def sb3_plain(market: Market, seed: int, **options: Any) -> "OnPolicyAlgorithm":
    """Stable-Baselines3's PPO with its own defaults."""
    from stable_baselines3 import PPO

    from flatout.bench.peers import FastVecEnv

    return PPO("MlpPolicy", FastVecEnv(market, PLAIN_ENVS), seed=seed, device="cpu", **options)


def sb3_many(market: Market, seed: int) -> "OnPolicyAlgorithm":
    """The same as `flatout bench train` has it: more accounts, larger minibatches, fewer epochs."""
    from stable_baselines3 import PPO

    from flatout.bench.peers import FAST_ENVS, FastVecEnv, new_model

    env = FastVecEnv(market, FAST_ENVS)
    return new_model(PPO, env, LearnerShape(width=64), seed=seed, device="cpu")


def sbx_plain(market: Market, seed: int, **options: Any) -> "OnPolicyAlgorithm":
    """SBX's PPO with its own defaults."""
    import sbx

    from flatout.bench.peers import FastVecEnv

    return sbx.PPO("MlpPolicy", FastVecEnv(market, PLAIN_ENVS), seed=seed, **options)


PEERS = {
    "sb3 ppo, its defaults": LearningPeer("stable_baselines3", 262_144, sb3_plain),
    "sb3 ppo, 64 accounts": LearningPeer("stable_baselines3", 2_097_152, sb3_many),
    "sbx ppo, its defaults": LearningPeer("sbx", 524_288, sbx_plain),
}
FINRL, FINRL_SAMPLES = "finrl eiie", 400_000


class FoundPeers(NamedTuple):
    """The peers that can run here, and why the others cannot."""

    follow: dict[str, Follow]
    missing: dict[str, str]
    limits: dict[str, PeerLimits]


def find_learning_peers(
    samples: int | None = None, seconds: float = SECONDS, finrl: Path | None = None
) -> FoundPeers:
    """The peers that are installed, each with so many samples, or with as many as suit it; `finrl`
    is the Python interpreter that has FinRL.
    """
    missing = {
        name: INSTALL for name, peer in PEERS.items() if not importlib.util.find_spec(peer.module)
    }
    limits = {
        name: PeerLimits(samples or peer.samples, seconds)
        for name, peer in PEERS.items()
        if name not in missing
    }
    follow = {name: follow_peer(PEERS[name], limit) for name, limit in limits.items()}
    if finrl is None:
        return FoundPeers(follow, missing | {FINRL: GIVE}, limits)
    limits[FINRL] = PeerLimits(samples or FINRL_SAMPLES, seconds)
    follow[FINRL] = lambda ground, seed: follow_finrl(ground, finrl, *limits[FINRL], seed)
    return FoundPeers(follow, missing, limits)


def follow_peer(peer: LearningPeer, limits: PeerLimits) -> Follow:
    """The points of a peer, of a seed."""
    return lambda ground, seed: follow_model(ground, peer.make(ground.lesson, seed), limits)


def follow_model(
    ground: Ground, model: "OnPolicyAlgorithm", limits: PeerLimits
) -> Iterator[JsonTable]:
    """What a model earns out of sample, by and by; seconds are of its `learn` alone."""
    forget_after(model)
    rollout = model.n_steps * model.n_envs
    seconds, done = 0.0, 0
    for until in next_points(max(1, limits.samples // rollout)):
        began = time.perf_counter()
        model.learn((until - done) * rollout, reset_num_timesteps=not done)
        seconds, done = seconds + time.perf_counter() - began, until
        figures = describe(ground, *trade_outside(ground, act_by(model)))
        yield {"samples": done * rollout, "seconds": seconds, **figures._asdict()}
        if seconds >= limits.seconds:
            return


def act_by(model: "OnPolicyAlgorithm") -> Act:
    """A model's policy without noise."""

    def act(seen: NumpyArray, bars: NumpyArray) -> NumpyArray:
        return np.asarray(model.predict(seen, deterministic=True)[0])

    return act


def forget_after(model: "OnPolicyAlgorithm") -> None:
    """One update, which compiles and loads what the next ones need, and then back to the weights of
    the beginning: neither is learning.
    """
    if hasattr(model.policy, "actor_state"):  # SBX: its states are not changed in place
        states = model.policy.actor_state, model.policy.vf_state
        model.learn(1)
        model.policy.actor_state, model.policy.vf_state = states
    else:
        weights = copy.deepcopy(model.get_parameters())
        model.learn(1)
        model.set_parameters(weights)
