"""What `flatout.PPO` asks of the engine that runs its environments and learns from them.

There are three, chosen by `engine_choice.py`: `fused_engine.py` for environments that are arrays of
one JAX program, `host_engine.py` for environments that are stepped on the host, and
`waiting_engine.py` for environments that wait and are stepped in an event loop.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from flatout.market.market import Market
from flatout.policies.network import Network
from flatout.sb3.callbacks import Callbacks
from flatout.sb3.environments import AnySpace, VecEnvLike
from flatout.sb3.model import AskedDevice, LearningModel
from flatout.sb3.trained_state import TrainedState


class EngineUpdate(NamedTuple):
    """What came of one rollout."""

    metrics: dict[str, float] | None  # None: a callback cut the rollout short, nothing was learned
    go_on: bool  # False: a callback wants the training to end


class LearningEngine(Protocol):
    """Environments and the learner behind them, driven one update at a time."""

    @property
    def fused(self) -> bool:
        """Whether environments and learner are one compiled program."""
        ...

    @property
    def device(self) -> AskedDevice:
        """Where it learns: a torch.device, or the name of JAX's platform."""
        ...

    @property
    def market(self) -> Market | None:
        """The flatout market whose accounts these environments are, for `save_bundle`."""
        ...

    @property
    def venv(self) -> VecEnvLike:
        """Environments with the methods of a VecEnv, for `get_env` and for callbacks."""
        ...

    @property
    def network(self) -> Network:
        """The weights as NumPy arrays, for `predict` and the policy; may be views of live ones."""
        ...

    @property
    def learner_state(self) -> TrainedState:
        """Copies of all that was learned, for `save`, `set_env` and `set_parameters`."""
        ...

    def restore(self, state: TrainedState) -> None:
        """Go on from this state. Called by the engine itself when it is built, and by the model
        when weights are loaded.
        """
        ...

    def set_seed(self, seed: int) -> None:
        """Draw other noise and other episodes from now on. Called by `set_random_seed`."""
        ...

    def begin_training(self, reset: bool) -> None:
        """Called by `learn` before its first update; with `reset` all episodes begin anew."""
        ...

    def run_update(self, model: LearningModel, callbacks: Callbacks) -> EngineUpdate:
        """Make one rollout, learn from it, and call the callbacks on the way. Called by `learn`
        until there were enough steps; counts them in `model.num_timesteps`.
        """
        ...

    def stop(self) -> None:
        """End whatever runs between updates; what was learned stays. Called by `learn` at its end,
        also after an error, and before another engine takes over.
        """
        ...


class EngineSource(NamedTuple):
    """The environments that a model was given, and how to build the engine that runs them."""

    observation_space: AnySpace
    action_space: AnySpace
    n_envs: int
    equal_minibatches: bool  # the batch size must divide a rollout
    build_engine: Callable[[LearningModel, TrainedState], LearningEngine]
