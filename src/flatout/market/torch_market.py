"""`TorchMarket`: tensors in and out on any device, the tape uploaded once, no host sync in `step`.

Accounts that end restart within the same step; `final_obs` holds what they saw last. No market
logic stands here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import array_api_compat.torch as xp
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from flatout.arrays import Array, ArrayTree, map_leaves
from flatout.errors import RulesError
from flatout.foreign import shorten_repr
from flatout.market import episode
from flatout.market.episode import Episode, Outcome, Shape
from flatout.market.market import Market
from flatout.market.rules import Rules
from flatout.market.starts import read_starts
from flatout.market.tape import Tape
from flatout.settings.fields import read_whole

READS = frozenset(
    {
        "_local_scalar_dense",
        "nonzero",
        "is_nonzero",
        "item",
        "masked_select",
        "equal",
        "unique_dim",
        "_unique2",
    }
)
UPLOADS = frozenset({"lift_fresh", "lift_fresh_copy"})
DTYPES = {torch.float32: "float32", torch.float64: "float64"}


@dataclass(frozen=True)
class TorchStep:
    """What a step returns; tensors with the account axis first."""

    obs: Tensor  # (account, feature) after restarts
    reward: Tensor  # (account,)
    terminated: Tensor  # (account,) ruined
    truncated: Tensor  # (account,) the stretch of bars is over: bootstrap from final_obs
    outcome: Outcome
    arrived: Episode  # before restarts
    observe: Callable[[Episode], Tensor]

    @cached_property
    def final_obs(self) -> Tensor:
        """(account, feature) before restarts: equals `obs` where nothing ended. Computed when asked
        for.
        """
        return self.observe(self.arrived)


def advance(
    state: Episode, action: Tensor, noise: Tensor, tape: Tape, rules: Rules, shape: Shape
) -> tuple[Episode, Episode, Outcome, Tensor]:
    """One bar and the restarts after it: the states before and after them, what happened, and the
    observation.
    """
    arrived, outcome = episode.step(
        state, action.T.contiguous(), tape=tape, shape=shape, rules=rules, xp=xp
    )
    ended = outcome.terminated | outcome.truncated
    after = episode.restart(arrived, ended, noise=noise, rules=rules, xp=xp)
    return arrived, after, outcome, episode.observe(after, tape, shape=shape, rules=rules, xp=xp)


class TorchMarket:
    """`n_envs` accounts in one market on one device.

    market   bars with their rules, as `flatout.build_market` makes them
    n_envs   how many accounts are stepped together
    device   "cpu", "cuda", "cuda:1", "mps", or a torch.device; it must be there
    dtype    torch.float32 or torch.float64, of all tensors
    seed     of the bars at which episodes start
    compile  fuses the step by `torch.compile` at its first call: a minute of waiting, then several
             times the speed; on a CPU that needs a C++ compiler

    >>> import torch
    >>> from flatout import TorchMarket, build_market
    >>> from flatout.bars.synthetic import built_in_market
    >>> market = TorchMarket(build_market(built_in_market(n_bars=300)), n_envs=64)
    >>> market.step(torch.zeros(64, 6)).reward.shape
    torch.Size([64])
    """

    def __init__(
        self,
        market: Market,
        n_envs: int = 1,
        device: str | torch.device = "cpu",
        dtype: torch.dtype = torch.float32,
        seed: int = 0,
        compile: bool = False,  # noqa: A002 (PyTorch's own word)
    ) -> None:
        if not isinstance(market, Market):
            raise RulesError(
                f"the market is of type {type(market).__name__}: give what flatout.build_market "
                "makes of bars"
            )
        if dtype not in DTYPES:
            raise RulesError(f"dtype is {dtype!r}: give torch.float32 or torch.float64")
        self.market, self.dtype = market, dtype
        self.n_envs = read_whole(n_envs, "n_envs", RulesError)
        self.device = find_device(device)
        tape, rules = market.arrays(DTYPES[dtype])
        self.tape, self.rules = map_leaves(self.upload, tape), map_leaves(self.upload, rules)
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self._advance = (
            torch.compile(advance, fullgraph=True, dynamic=False) if compile else advance
        )
        self.state = episode.reset(self._noise(), market.shape, self.rules, xp)

    def upload(self, array: Array) -> Tensor:
        """An array on the market's device."""
        return torch.as_tensor(array, device=self.device)

    def _noise(self) -> Tensor:
        return torch.rand(
            self.n_envs, generator=self.generator, device=self.device, dtype=self.dtype
        )

    def _observe(self, state: Episode) -> Tensor:
        return episode.observe(state, self.tape, shape=self.market.shape, rules=self.rules, xp=xp)

    def reset(self, seed: int | None = None, options: Mapping[str, object] | None = None) -> Tensor:
        """Restart all accounts at random bars, or at those of `options["start"]`: one for all or
        one for each account. Returns the (account, feature) observations.
        """
        asked = read_starts(options, self.n_envs, self.market.rules.segments)
        start = None if asked is None else self.upload(asked)
        if seed is not None:
            self.generator.manual_seed(seed)
        self.state = episode.reset(self._noise(), self.market.shape, self.rules, xp, start)
        return self._observe(self.state)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self, action: Tensor) -> TorchStep:
        """One bar for all accounts, from an (account, action) tensor on the market's device."""
        wanted = (self.n_envs, self.market.action_size)
        if not isinstance(action, Tensor) or tuple(action.shape) != wanted:
            given = tuple(action.shape) if isinstance(action, Tensor) else shorten_repr(action)
            raise RulesError(f"the action is {given}: give a tensor of the shape {wanted}")
        arrived, self.state, outcome, obs = self._advance(
            self.state, action, self._noise(), self.tape, self.rules, self.market.shape
        )
        return TorchStep(
            obs=obs,
            reward=outcome.reward,
            terminated=outcome.terminated,
            truncated=outcome.truncated,
            outcome=outcome,
            arrived=arrived,
            observe=self._observe,
        )


class HostSyncs(TorchDispatchMode):  # type: ignore[misc]
    """Notes what reads a tensor's values on the host, and what copies between host and device.

    It sees every operation on any device, so that a CPU can tell whether a GPU would have to wait.
    A Boolean mask as index counts too: its size must be known. Python numbers in arithmetic travel
    as arguments.
    """

    def __init__(self, watched: frozenset[str] = READS | UPLOADS) -> None:
        super().__init__()
        self.watched = watched
        self.found: list[str] = []

    def __torch_dispatch__(
        self,
        function: torch._ops.OpOverload,
        types: Sequence[type],
        args: tuple[Array, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> ArrayTree:
        kwargs = kwargs or {}
        name = function.overloadpacket.__name__
        masks = (
            [x for x in args[1] if x is not None and x.dtype == torch.bool]
            if name == "index"
            else []
        )
        moved = name == "_to_copy" and kwargs.get("device") is not None
        if name in self.watched or moved or masks:
            self.found.append(str(function))
        return function(*args, **kwargs)


def find_device(given: object) -> torch.device:
    """The device that is asked for, or a refusal of one that PyTorch does not find here."""
    try:
        device = torch.device(given)
        torch.empty(0, device=device)
    except (AssertionError, NotImplementedError, RuntimeError, TypeError):
        raise RulesError(
            f"device is {shorten_repr(given)}, which PyTorch does not find here: give 'cpu', or "
            "one that `flatout doctor` shows"
        ) from None
    return device


def best_device() -> str:
    """The first GPU if there is one, else the CPU."""
    return (
        "cuda"
        if torch.cuda.is_available()
        else "mps"
        if torch.backends.mps.is_available()
        else "cpu"
    )


def product(
    a: NDArray[np.float32], b: NDArray[np.float32], c: NDArray[np.float32]
) -> Callable[[], Tensor]:
    """A function that multiplies two NumPy matrices with PyTorch, into a third: what the machine's
    peak is asked of.
    """
    left, right, out = (torch.from_numpy(x) for x in (a, b, c))
    return lambda: torch.mm(left, right, out=out)
