"""`flatout.PPO`: Stable-Baselines3's PPO with flatout's engines behind it.

The constructor and methods are Stable-Baselines3's, so that a script runs after changing its
import. Environments of Gymnasium and of Stable-Baselines3 are stepped on the host, and PyTorch
learns; flatout's market and environments in gymnax's convention run inside one JAX program.
`engine_choice.py` decides which; this file knows engines only as `engine.LearningEngine`.
"""

import random
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from flatout.arrays import Array
from flatout.errors import SettingsError
from flatout.market.market import Market
from flatout.policies.network import Network
from flatout.runs import versions
from flatout.sb3 import arguments, flat_spaces, saving, training_loop
from flatout.sb3.arguments import Arguments, MaybeScheduled
from flatout.sb3.callbacks import Callbacks
from flatout.sb3.engine import EngineSource, LearningEngine
from flatout.sb3.engine_choice import read_envs
from flatout.sb3.environments import SpaceArray, VecEnvLike, find_normaliser, register_with_sb3
from flatout.sb3.logger import TrainingLogger, new_logger
from flatout.sb3.model import AskedDevice, LearningModel, new_state_for, set_arguments
from flatout.sb3.model_file import PathOrFile
from flatout.sb3.policy import MlpPolicy, RecurrentState
from flatout.sb3.policy_bundle import make_bundle
from flatout.sb3.trained_state import TrainedState
from flatout.settings.tables import MarketSettings, Settings
from flatout.slow_envs.overlap import Overlap

if TYPE_CHECKING:
    import torch


class PPO(LearningModel):
    """Proximal policy optimisation with the arguments and methods of Stable-Baselines3, which mean
    what they mean there.

    policy   "MlpPolicy"
    env      the name of a Gymnasium environment, one of Gymnasium or Stable-Baselines3, a
             `flatout.Market`, or a list of environments that wait
    overlap  a `flatout.Overlap`: how waits and learning overlap, for such a list

    >>> import numpy as np
    >>> from flatout import PPO
    >>> model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, seed=0, device="cpu").learn(128)
    >>> model.num_timesteps
    128
    >>> action, _ = model.predict(np.zeros(4, np.float32), deterministic=True)
    """

    def __init__(
        self,
        policy: str | type,
        env: object,
        learning_rate: MaybeScheduled = 3e-4,
        n_steps: int = 2048,
        batch_size: int = 64,
        n_epochs: int = 10,
        gamma: float = 0.99,
        gae_lambda: float = 0.95,
        clip_range: MaybeScheduled = 0.2,
        clip_range_vf: MaybeScheduled | None = None,
        normalize_advantage: bool = True,
        ent_coef: float = 0.0,
        vf_coef: float = 0.5,
        max_grad_norm: float = 0.5,
        use_sde: bool = False,
        sde_sample_freq: int = -1,
        rollout_buffer_class: object = None,
        rollout_buffer_kwargs: Arguments | None = None,
        target_kl: float | None = None,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: Arguments | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: AskedDevice = "auto",
        _init_setup_model: bool = True,
        *,
        # how waits and learning overlap, for a list of environments
        overlap: Overlap | None = None,
    ) -> None:
        given = {
            name: value for name, value in locals().items() if name not in ("self", "policy", "env")
        }
        arguments.check_policy_name(policy)
        self._set_arguments(given)
        self._attach(read_envs(env, self.overlap), None)
        self.set_random_seed(seed)

    def _set_arguments(self, given: Arguments) -> None:
        """Set all attributes: those that its parts share, and its own."""
        set_arguments(self, given)
        self.overlap: Overlap | None = given["overlap"]
        self._logger: TrainingLogger | None = None
        self._custom_logger = False
        self._log_in_file: str | None = None  # the folder that a model's file names, not its user
        self.engine: LearningEngine | None = None
        self.policy = MlpPolicy(self)

    def _attach(self, source: EngineSource, state: TrainedState | None) -> None:
        """Take environments and the engine that runs them; without a state nothing was learned."""
        flat_spaces.check_spaces(source.observation_space, source.action_space)
        self.observation_space, self.action_space = source.observation_space, source.action_space
        self.n_envs = source.n_envs
        arguments.check_rollout(
            rollout=self.n_steps * self.n_envs,
            batch_size=self.batch_size,
            normalize_advantage=self.normalize_advantage,
            equal_minibatches=source.equal_minibatches,
        )
        state = new_state_for(self) if state is None else state
        if self.engine is not None:
            self.engine.stop()
        self.engine = source.build_engine(self, state)
        if self.verbose >= 1:
            print(f"Using {self.device} device, {self.n_envs} environments")

    @property
    def n_steps(self) -> int:
        """Steps of each environment between two updates; fixed."""
        return self._n_steps

    @property
    def batch_size(self) -> int:
        """Transitions of a minibatch; fixed."""
        return self._batch_size

    @property
    def device(self) -> AskedDevice:
        """Where it learns: a torch.device, or the name of JAX's platform."""
        return "cpu" if self.engine is None else self.engine.device

    @property
    def network(self) -> Network:
        """The weights as NumPy has them."""
        return self._loaded.network if self.engine is None else self.engine.network

    @property
    def learner_state(self) -> TrainedState:
        """All that was learned: weights, Adam's memory and counters."""
        return self._loaded if self.engine is None else self.engine.learner_state

    @property
    def market(self) -> Market | None:
        """The flatout market that it learns in, or None."""
        return None if self.engine is None else self.engine.market

    def set_network(self, network: Network) -> None:
        """Go on with other weights; Adam's memory stays."""
        self._restore(self.learner_state._replace(network=network))

    def _restore(self, state: TrainedState) -> None:
        """Go on from this state, with or without environments."""
        if self.engine is None:
            self._loaded = state
        else:
            self.engine.restore(state)

    # --- environments

    @property
    def env(self) -> VecEnvLike:
        """The environments with the methods of Stable-Baselines3's VecEnv, or None."""
        register_with_sb3()  # it may have been loaded since they were made
        return None if self.engine is None else self.engine.venv

    def get_env(self) -> VecEnvLike:
        """The environments with the methods of Stable-Baselines3's VecEnv, or None."""
        return self.env

    def get_vec_normalize_env(self) -> VecEnvLike:
        """Stable-Baselines3's VecNormalize around the environments, or None."""
        return find_normaliser(self.env)

    def set_env(self, env: object, force_reset: bool = True) -> None:
        """Learn in other environments of the same spaces and number from now on."""
        source = read_envs(env, self.overlap)
        if self.engine is not None and source.n_envs != self.n_envs:
            raise SettingsError(
                f"{source.n_envs} environments were given, this model has {self.n_envs}: give as "
                f"many, or save it and use `PPO.load(path, env)`"
            )
        flat_spaces.check_same_spaces(source, self)
        if not force_reset:
            raise SettingsError(
                "force_reset is False; other environments begin anew here: leave it True"
            )
        self._attach(source, self.learner_state)

    def set_random_seed(self, seed: int | None = None) -> None:
        """Seed Python, NumPy, the action space, the environments and the learner's noise."""
        seed = arguments.check_seed(seed)
        if seed is None:
            return
        random.seed(seed)
        np.random.seed(seed % 2**32)
        self._seed = seed % 2**32
        self.prediction_noise = np.random.default_rng(self._seed)
        self.action_space.seed(seed)
        if self.engine is not None:
            self.engine.set_seed(self._seed)

    # --- learning

    def learn(
        self,
        total_timesteps: int,
        callback: object = None,
        log_interval: int | None = 1,
        tb_log_name: str = "PPO",
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> "PPO":
        """Learn for at least this many steps, whole rollouts of them."""
        engine = self.engine
        if engine is None:
            raise SettingsError(
                "this model has no environment: give one with `set_env`, or `PPO.load(path, "
                "env=env)`"
            )
        total_timesteps = training_loop.reset_counters(self, total_timesteps, reset_num_timesteps)
        engine.begin_training(reset_num_timesteps)
        self._open_logger(tb_log_name, reset_num_timesteps)
        callbacks = Callbacks(callback, progress_bar, self)
        callbacks.training_start({
            "self": self, "total_timesteps": total_timesteps, "callback": callback,
            "log_interval": log_interval,
            "tb_log_name": tb_log_name, "reset_num_timesteps": reset_num_timesteps,
            "progress_bar": progress_bar,
        }, globals())  # fmt: skip
        try:
            training_loop.run_updates(self, engine, callbacks, log_interval)
        finally:
            engine.stop()
        callbacks.training_end()
        if not self._custom_logger:
            self.logger.close()
        return self

    def _open_logger(self, tb_log_name: str, reset: bool) -> None:
        """Make the logger of a training, unless the user gave one."""
        if not self._custom_logger:
            folder = self.tensorboard_log
            folder = saving.check_log_folder(folder) if folder == self._log_in_file else folder
            self._logger = new_logger(self.verbose, folder, tb_log_name, reset)

    def dump_logs(self, iteration: int = 0) -> None:
        """Write what was recorded, with the means over the last episodes and the speed."""
        training_loop.dump_logs(self, iteration)

    @property
    def logger(self) -> TrainingLogger:
        """The logger that records are given to; there is none before `learn` or `set_logger`."""
        if self._logger is None:
            raise SettingsError("there is no logger before `learn` or `set_logger`")
        return self._logger

    def set_logger(self, logger: TrainingLogger) -> None:
        """Give records to this logger: flatout's or Stable-Baselines3's."""
        self._logger, self._custom_logger = logger, True

    # --- acting, saving, loading

    def predict(
        self,
        observation: ArrayLike,
        state: RecurrentState = None,
        episode_start: ArrayLike | None = None,
        deterministic: bool = False,
    ) -> tuple[SpaceArray, RecurrentState]:
        """Actions for one observation or several, and the state as it was given."""
        return self.policy.predict(observation, state, episode_start, deterministic)

    def get_parameters(self) -> "dict[str, dict[str, torch.Tensor]]":
        """The weights under Stable-Baselines3's names."""
        return {"policy": self.policy.state_dict()}

    def set_parameters(
        self,
        load_path_or_dict: PathOrFile | dict[str, Mapping[str, Array]],
        exact_match: bool = True,
        device: AskedDevice = "auto",
    ) -> None:
        """Take over weights by Stable-Baselines3's names, or all that a file has learned."""
        if isinstance(load_path_or_dict, dict):
            self.policy.set_parameters(load_path_or_dict, exact_match)
        else:
            self._restore(saving.read_state_for(self, load_path_or_dict))

    def save(self, path: PathOrFile, exclude: object = None, include: object = None) -> None:
        """Write weights, optimiser and arguments into one .zip file of JSON and safetensors; no
        environment.
        """
        if exclude or include:
            raise SettingsError(
                "exclude and include are not offered: a file always holds the same things"
            )
        saving.save_model(self, path)

    @classmethod
    def load(
        cls,
        path: PathOrFile,
        env: object = None,
        device: AskedDevice = "auto",
        custom_objects: Arguments | None = None,
        print_system_info: bool = False,
        force_reset: bool = True,
        **kwargs: object,
    ) -> "PPO":
        """The model that `save` wrote; with `env` it can learn on, in environments that begin
        anew.
        """
        if print_system_info:
            print("\n".join(f"- {name}: {version}" for name, version in versions().items()))
        if not force_reset:
            raise SettingsError(
                "force_reset is False; a file holds no environments, they begin anew: leave it True"
            )
        saved = saving.read_saved_model(path)
        model, changes = cls.__new__(cls), {**(custom_objects or {}), **kwargs}
        model._set_arguments(saving.arguments_of(saved, device, changes))
        model._log_in_file = None if "tensorboard_log" in changes else model.tensorboard_log
        saving.restore_model(model, saved)
        if env is not None:
            source = read_envs(env, model.overlap)
            flat_spaces.check_same_spaces(source, model)
            model._attach(source, model._loaded)
            model.set_random_seed(model.seed)
        return model

    def save_bundle(
        self, path: Path | str, settings: Settings | MarketSettings | None = None
    ) -> None:
        """Write the policy as a flatout Bundle; `settings` are those that the market was built
        with, if not default.
        """
        make_bundle(self, self.market, settings).save(path)
