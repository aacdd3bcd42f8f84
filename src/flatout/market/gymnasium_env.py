"""The market for Gymnasium: `MarketEnv` (one account) and `MarketVectorEnv` (many) on NumPy.

No market logic stands here: both drive the functions of episode.py.
"""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray

from flatout.arrays import NumpyArray, last_axis_first, map_leaves, select
from flatout.bars.source import Bars, find_source
from flatout.errors import RulesError
from flatout.features.recipe import FittedRecipe
from flatout.foreign import shorten_repr
from flatout.market import episode
from flatout.market.episode import OBSERVATION_LIMIT, Episode, Outcome
from flatout.market.market import Market, build_market, check_fitted
from flatout.market.starts import read_starts
from flatout.settings.fields import read_whole
from flatout.settings.loading import GivenSettings, resolve_settings

ActionSpace = gym.spaces.Box | gym.spaces.MultiDiscrete
Info = dict[str, Any]  # Gymnasium's own type of infos and options


def market_of(
    bars: Market | Bars | None, settings: GivenSettings, fitted: FittedRecipe | None
) -> Market:
    """The market of whatever names one: itself, bars as `flatout.train` takes them, or nothing for
    those of `[data]` in the settings, and without these for the built-in random walk.
    """
    if isinstance(bars, Market):
        if settings is not None or fitted is not None:
            raise RulesError(
                "a Market is complete: give settings and fitted recipe to build_market, not "
                "beside it"
            )
        return bars
    check_fitted(fitted)
    shown = {"features.indicators": fitted.recipe.indicators} if fitted else None
    resolved = resolve_settings(settings, shown)
    return build_market(find_source(resolved, bars).read(), resolved, fitted)


def spaces(market: Market) -> tuple[gym.spaces.Box, ActionSpace]:
    """Observation and action space of one account."""
    observation = gym.spaces.Box(
        -OBSERVATION_LIMIT, OBSERVATION_LIMIT, (market.observation_size,), np.float32
    )
    if market.shape.levels:
        return observation, gym.spaces.MultiDiscrete(
            [len(market.shape.levels)] * market.action_size
        )
    return observation, gym.spaces.Box(-1.0, 1.0, (market.action_size,), np.float32)


def checked_action(
    action: ArrayLike, shape: tuple[int, ...], choices: int = 0
) -> NDArray[np.float32]:
    """The action as float32, or an error when its shape is wrong, it is not finite, or it is none
    of so many choices.
    """
    try:
        array = np.asarray(action, np.float32)
    except (TypeError, ValueError):
        raise RulesError(
            f"the action is {shorten_repr(action)}: give numbers in the shape {shape}"
        ) from None
    if array.shape != shape:
        raise RulesError(f"the action has shape {array.shape}, this market wants {shape}")
    if not np.isfinite(array).all():
        raise RulesError("the action holds NaN or infinite values: the policy has diverged")
    if choices and not np.isin(array, np.arange(choices)).all():
        raise RulesError(
            f"the action holds {array.min():g} to {array.max():g}; this market wants whole numbers "
            f"from 0 to {choices - 1}, of which {choices // 2} holds"
        )
    return array


def start_info(state: Episode) -> Info:
    """Where accounts stand; copies, because callers may write into them."""
    return {"equity": state.marks.equity.copy(), "bar": state.t.copy()}


def info_of(state: Episode, outcome: Outcome) -> Info:
    """What a step tells beside the reward: equity, bar and the unweighted reward terms."""
    terms = {f"reward/{name}": value for name, value in outcome.terms._asdict().items()}
    return {**start_info(state), **terms}


class MarketVectorEnv(VectorEnv[NDArray[np.float32], NumpyArray, NumpyArray]):
    """`num_envs` accounts stepped together; an account that ends restarts within the same step
    (`final_obs` in the info). Each starts at a bar of its own, drawn anew for every episode.

    bars      a path, a Panel, a frame or a `Market`; else `data.bars` of the settings; else the
              built-in random walk
    num_envs  how many accounts
    settings  a path to flatout.toml, a dict of its tables, or `Settings`
    fitted    a `FittedRecipe`, which makes the features; by default the settings' own recipe,
              fitted on all of these bars. Of test bars give what was fitted on training bars, as
              `market.fitted` of those has it

    >>> from flatout import MarketVectorEnv
    >>> from flatout.bars.synthetic import RandomWalk
    >>> envs = MarketVectorEnv(RandomWalk(n_bars=300).panel(), num_envs=64)
    >>> observations, infos = envs.reset(seed=0)
    >>> len(observations), envs.step(envs.action_space.sample())[1].shape
    (64, (64,))
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": []}  # noqa: RUF012 (Gymnasium's own spelling)

    def __init__(
        self,
        bars: Market | Bars | None = None,
        num_envs: int = 1,
        settings: GivenSettings = None,
        fitted: FittedRecipe | None = None,
    ) -> None:
        self.market = market_of(bars, settings, fitted)
        self.num_envs = num_envs = read_whole(num_envs, "num_envs", RulesError)
        self.tape, self.rules = self.market.arrays(np.float32)
        self.single_observation_space, self.single_action_space = spaces(self.market)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.state: Episode | None = None

    def _observe(self, state: Episode) -> NDArray[np.float32]:
        observation: NDArray[np.float32] = episode.observe(
            state, self.tape, shape=self.market.shape, rules=self.rules, xp=np
        )
        return observation

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: Info | None = None
    ) -> tuple[NDArray[np.float32], Info]:
        """Restart all accounts, or those of `options["reset_mask"]`, at random bars, or at those of
        `options["start"]`: one for all or one for each account.
        """
        start = read_starts(options, self.num_envs, self.rules.segments)
        super().reset(seed=seed if not isinstance(seed, list) else seed[0], options=options)
        noise = self.np_random.random(self.num_envs, dtype=np.float32)
        fresh = episode.reset(noise, self.market.shape, self.rules, np, start)
        mask = (options or {}).get("reset_mask")
        if mask is not None and self.state is not None:
            fresh = select(np.asarray(mask, bool), fresh, self.state, np)
        self.state = fresh
        return self._observe(fresh), start_info(fresh)

    def step(
        self, actions: NumpyArray
    ) -> tuple[
        NDArray[np.float32], NDArray[np.float32], NDArray[np.bool_], NDArray[np.bool_], Info
    ]:
        """One bar for all accounts."""
        if self.state is None:
            raise RulesError("call reset() before step()")
        action = checked_action(
            actions, self.action_space.shape or (), len(self.market.shape.levels)
        )
        arrived, outcome = episode.step(
            self.state,
            last_axis_first(action, np),
            tape=self.tape,
            shape=self.market.shape,
            rules=self.rules,
            xp=np,
        )
        observation, info = self._observe(arrived), info_of(arrived, outcome)
        ended = outcome.terminated | outcome.truncated
        self.state = self._restart(arrived, ended, observation, info) if ended.any() else arrived
        return observation, outcome.reward, outcome.terminated, outcome.truncated, info

    def _restart(
        self,
        arrived: Episode,
        ended: NDArray[np.bool_],
        observation: NDArray[np.float32],
        info: Info,
    ) -> Episode:
        """Restart the accounts that ended, writing their first observation over the last, which
        moves into the info.
        """
        final_obs = np.empty(self.num_envs, dtype=object)
        for i in np.flatnonzero(ended):
            final_obs[i] = observation[i].copy()
        final_info = {name: value.copy() for name, value in info.items()}
        final_info |= {f"_{name}": ended for name in info}
        noise = self.np_random.random(self.num_envs, dtype=np.float32)
        state = episode.restart(arrived, ended, noise=noise, rules=self.rules, xp=np)
        observation[ended] = self._observe(map_leaves(lambda leaf: leaf[..., ended], state))
        info |= start_info(state)
        info |= {
            "final_obs": final_obs,
            "_final_obs": ended,
            "final_info": final_info,
            "_final_info": ended,
        }
        return state


class MarketEnv(gym.Env[NDArray[np.float32], NumpyArray]):
    """One account; `gymnasium.make("flatout/Market-v0", bars="candles.parquet")`.

    bars      a path, a Panel, a frame or a `Market`; else `data.bars` of the settings; else the
              built-in random walk
    settings  a path to flatout.toml, a dict of its tables, or `Settings`
    fitted    a `FittedRecipe`, which makes the features; by default the settings' own recipe,
              fitted on all of these bars. Of test bars give what was fitted on training bars, as
              `market.fitted` of those has it
    render_mode  None: there are no pictures

    >>> from flatout import MarketEnv
    >>> from flatout.bars.synthetic import RandomWalk
    >>> env = MarketEnv(RandomWalk(n_bars=300).panel())
    >>> observation, info = env.reset(seed=0)
    >>> observation.shape == env.observation_space.shape
    True
    """

    metadata = {"render_modes": []}  # noqa: RUF012 (Gymnasium's own spelling)

    def __init__(
        self,
        bars: Market | Bars | None = None,
        settings: GivenSettings = None,
        fitted: FittedRecipe | None = None,
        render_mode: str | None = None,
    ) -> None:
        if render_mode is not None:
            raise RulesError(
                f"render_mode {render_mode!r} is not offered: `flatout backtest` draws the equity"
            )
        self.render_mode = render_mode
        self.market = market_of(bars, settings, fitted)
        self.tape, self.rules = self.market.arrays(np.float32)
        self.observation_space, self.action_space = spaces(self.market)
        self.state: Episode | None = None

    def _observe(self, state: Episode) -> NDArray[np.float32]:
        observation: NDArray[np.float32] = episode.observe(
            state, self.tape, shape=self.market.shape, rules=self.rules, xp=np
        )
        return observation[0]

    def reset(
        self, *, seed: int | None = None, options: Info | None = None
    ) -> tuple[NDArray[np.float32], Info]:
        """Start a new episode at a random bar, or at that of `options["start"]`."""
        start = read_starts(options, 1, self.rules.segments)
        super().reset(seed=seed)
        noise = self.np_random.random(1, dtype=np.float32)
        self.state = episode.reset(noise, self.market.shape, self.rules, np, start)
        return self._observe(self.state), {"equity": 1.0, "bar": int(self.state.t[0])}

    def step(self, action: NumpyArray) -> tuple[NDArray[np.float32], float, bool, bool, Info]:
        """Trade through one bar, with an action of numbers in [-1, 1], or of choices where the
        market's actions are `discrete`.
        """
        if self.state is None:
            raise RulesError("call reset() before step()")
        action = checked_action(
            action, self.action_space.shape or (), len(self.market.shape.levels)
        )
        arrived, outcome = episode.step(
            self.state,
            action[:, None],
            tape=self.tape,
            shape=self.market.shape,
            rules=self.rules,
            xp=np,
        )
        self.state = arrived
        info = {name: value[0].item() for name, value in info_of(arrived, outcome).items()}
        return (
            self._observe(arrived),
            outcome.reward[0].item(),
            bool(outcome.terminated[0]),
            bool(outcome.truncated[0]),
            info,
        )
