"""PPO over environments that are arrays (flatout's market, gymnax's convention): all of an update
is one JAX program.

Nothing leaves the device within an update, so callbacks are called once after each.
"""

from functools import cache, cached_property
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker

from flatout.arrays import map_leaves
from flatout.errors import SettingsError
from flatout.learners.forecast import USUAL_ENVS, choose
from flatout.learners.rates import Program, Rates, metric_names
from flatout.market.gymnasium_env import MarketEnv, MarketVectorEnv
from flatout.market.gymnasium_env import spaces as market_spaces
from flatout.market.market import Market
from flatout.sb3.arguments import Scheduled, minibatches_of, rates_of_model, scheduled_now
from flatout.sb3.callbacks import Calls
from flatout.sb3.environments import ClosedFace, VectorFace
from flatout.sb3.knowledge import Knowledge


class ArrayEnvs(NamedTuple):
    """Environments as one program's arrays."""

    environment: Any
    data: Any
    rules: Any
    n_envs: int
    observation_space: Any
    action_space: Any
    market: Market | None = None


def array_envs(env: Any) -> ArrayEnvs | None:
    """The environments of whatever the fused engine can run; None for all else."""
    plain = env
    while isinstance(
        plain, OrderEnforcing | PassiveEnvChecker
    ):  # what gymnasium.make adds; neither changes a step
        plain = plain.env
    if isinstance(plain, Market):
        return of_market(plain, USUAL_ENVS)
    if type(plain) is MarketEnv:
        return of_market(plain.market, USUAL_ENVS)
    if type(plain) is MarketVectorEnv:
        return of_market(plain.market, plain.num_envs)
    pair = env if isinstance(env, tuple) and len(env) == 2 else (env, None)
    if not isinstance(env, gym.Env) and all(
        hasattr(pair[0], name) for name in ("reset_env", "step_env")
    ):
        return of_gymnax(*pair)
    return None


def of_market(market: Market, n_envs: int) -> ArrayEnvs:
    """Accounts in one market."""
    from flatout.learners.jax_engine.market_environment import (
        JaxMarketEnvironment,
    )  # late: JAX takes seconds to load

    tape, rules = market.arrays(np.float32)
    rules = map_leaves(np.asarray, rules)
    return ArrayEnvs(
        JaxMarketEnvironment(market.shape), tape, rules, n_envs, *market_spaces(market), market
    )


def of_gymnax(env: Any, params: Any) -> ArrayEnvs:
    """Environments in gymnax's convention; their parameters are constants of the program."""
    from flatout.learners.jax_engine.gymnax_environment import GymnaxEnvironment

    class Fixed(GymnaxEnvironment):
        """All with the same parameters."""

        def reset(self, noise: Any, data: Any, rates: Any) -> Any:
            return super().reset(noise, data, self.params)

        def step(self, state: Any, action: Any, noise: Any, data: Any, rates: Any) -> Any:
            return super().step(state, action, noise, data, self.params)

    params = env.default_params if params is None else params
    seen, acted = env.observation_space(params), env.action_space(params)
    if hasattr(seen, "n"):
        raise SettingsError(
            f"the observation space {seen} of {env} is a choice; the fused engine reads vectors"
        )
    observation = spaces.Box(-np.inf, np.inf, tuple(seen.shape), np.float32)
    if hasattr(acted, "n"):
        action: Any = spaces.Discrete(int(acted.n))
    else:
        low, high = (
            np.broadcast_to(np.asarray(x, np.float32), acted.shape) for x in (acted.low, acted.high)
        )
        action = spaces.Box(low, high, dtype=np.float32)
    return ArrayEnvs(Fixed(env, params), None, (), USUAL_ENVS, observation, action)


@cache
def runner(program: Program) -> Any:
    """The compiled update, shared by models of one program."""
    from flatout.learners.jax_engine.population import chunk_runner

    return chunk_runner(program)


WHY_CLOSED = (
    "these environments live inside the compiled program and cannot be stepped from outside: make "
    "one with gymnax, and "
    "use `predict` on what it shows"
)


class FusedEngine:
    """One lane of the population learner."""

    fused = True

    def __init__(self, envs: ArrayEnvs, model: Any, known: Knowledge) -> None:
        self.envs, self.n_envs = envs, envs.n_envs
        self.observation_space, self.action_space = envs.observation_space, envs.action_space
        minibatches = minibatches_of(model.n_steps * self.n_envs, model.batch_size)
        policy = model.architecture
        program = Program(
            envs.environment,
            self.n_envs,
            model.n_steps,
            minibatches,
            policy.hidden,
            policy.activation,
            "gaussian",
        )
        data_bytes = sum(array.nbytes for array in envs.data or ())
        self.program = choose(program, self.n_envs, 1, 1, data_bytes)
        self.rates = self.lanes(rates_of_model(model, envs.rules, Scheduled()))
        self.know(known)
        self.device = self.checked_device(model.asked_device)

    def checked_device(self, asked: Any) -> str:
        """The device that JAX chose, if it is the one that was asked for."""
        found = next(iter(self.state.discounted.devices())).platform
        wanted = {"auto": found, "cuda": "gpu"}.get(
            str(asked).split(":")[0], str(asked).split(":")[0]
        )
        if wanted != found:
            raise SettingsError(
                f"device is {str(asked)!r}, JAX runs on {found!r} here: leave device at 'auto', "
                f"or set JAX_PLATFORMS "
                "before Python starts"
            )
        return found

    def lanes(self, rates: Rates) -> Rates:
        """Rates of one lane, with the lane axis."""
        return map_leaves(lambda leaf: np.asarray(leaf)[None], rates)

    def fresh(self, network: Any, seed: int) -> Any:
        """A lane whose episodes begin."""
        from flatout.learners.jax_engine.population import init

        return init(self.program, self.envs.data, self.rates, [network], [seed])

    def know(self, known: Knowledge) -> None:
        """Go on from there, in fresh environments."""
        words = np.random.SeedSequence([known.seed, known.updates]).generate_state(1)
        state = self.fresh(known.network, int(words[0]))
        memory = self.lanes((known.first, known.second, np.asarray(known.descents, np.int32)))  # type: ignore[arg-type]
        self.state = state._replace(
            optimiser=state.optimiser._replace(mu=memory[0], nu=memory[1], count=memory[2]),
            seed=np.asarray([known.seed], np.uint32),
            updates=np.asarray([known.updates], np.int32),
        )
        self.fetched: Any = None

    @property
    def known(self) -> Knowledge:
        """What it has learned so far."""
        state = self.state
        first, second = (np.array(x[0]) for x in (state.optimiser.mu, state.optimiser.nu))
        return Knowledge(
            self.network,
            first,
            second,
            int(state.optimiser.count[0]),
            int(state.updates[0]),
            int(state.seed[0]),
        )

    @property
    def network(self) -> Any:
        """The weights as NumPy has them, fetched once after each update."""
        if self.fetched is None:
            self.fetched = map_leaves(
                lambda leaf: np.array(np.asarray(leaf)[0]), self.state.network
            )
        return self.fetched

    @cached_property
    def venv(self) -> Any:
        """Environments of the same kind on the host, for scripts and callbacks that want to step
        some.
        """
        if self.envs.market is None:
            return ClosedFace(self.observation_space, self.action_space, self.n_envs, WHY_CLOSED)
        return VectorFace(MarketVectorEnv(self.envs.market, self.n_envs))

    def begin(self, anew: bool) -> None:
        """Fresh episodes, if asked for and if they are not fresh already."""
        if anew and self.ran:
            self.know(self.known)

    @property
    def ran(self) -> bool:
        """Whether any step was made since the episodes began."""
        return bool(
            np.any(np.asarray(self.state.episodes.length) + np.asarray(self.state.episodes.ended))
        )

    def reseed(self, seed: int) -> None:
        """Other noise from now on."""
        self.know(self.known._replace(seed=seed))

    def update(self, model: Any, calls: Calls) -> tuple[dict[str, float] | None, bool]:
        """One rollout and what is learned from it, then the callbacks."""
        calls.rollout_start()
        model.num_timesteps += self.program.rollout
        model.note_progress()
        rates = rates_of_model(model, self.envs.rules, scheduled_now(model))._replace(
            until=np.asarray(self.state.updates)[0] + np.int32(1)
        )
        self.rates = self.lanes(rates)
        self.state, row = runner(self.program)(self.envs.data, self.rates, self.state)
        self.fetched = None
        metrics = dict(zip(metric_names(self.program), np.asarray(row)[0].tolist(), strict=True))
        metrics = (
            metrics
            if self.program.sizes.deviations
            else {k: v for k, v in metrics.items() if k != "std"}
        )
        dones, infos = self.ends()
        shown = {
            "env": self.venv,
            "n_rollout_steps": model.n_steps,
            "n_steps": model.n_steps,
            "rollout_buffer": None,
        }
        going = calls.step({**shown, "dones": dones, "infos": infos})
        model.note_episodes(infos, dones > 0)
        calls.rollout_end()
        return metrics, going

    def end(self) -> None:
        """Nothing runs between updates."""

    def ends(self) -> tuple[Any, list[dict[str, Any]]]:
        """How many episodes of each environment ended in the rollout, and their mean return and
        length.
        """
        ended, earned, length = (
            np.asarray(x[0]) for x in (self.state.episodes.ended, self.state.episodes.ended_earned,
                                       self.state.episodes.ended_length)
        )  # fmt: skip
        infos: list[dict[str, Any]] = [{} for _ in range(self.n_envs)]
        for k in np.flatnonzero(ended):
            infos[k] = {
                "episode": {
                    "r": float(earned[k] / ended[k]),
                    "l": float(length[k] / ended[k]),
                    "t": 0.0,
                }
            }
        return ended.astype(np.int64), infos
