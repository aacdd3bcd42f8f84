"""`flatout.PPO`: Stable-Baselines3's PPO with flatout's engines behind it.

The constructor and methods are Stable-Baselines3's, so that a script runs after changing its
import. Environments of Gymnasium and of Stable-Baselines3 are stepped on the host, and PyTorch
learns; flatout's market and environments in gymnax's convention run inside one JAX program.
`ppo_source.py` decides which.
"""

import random
import sys
import time
import warnings
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np

from flatout.errors import FlatoutError, SettingsError
from flatout.policies.network import Network, new_network
from flatout.runs import versions
from flatout.sb3 import arguments, flat_spaces, saving
from flatout.sb3.callbacks import Calls
from flatout.sb3.engine_choice import source_of
from flatout.sb3.environments import known_to_sb3, unwrapped_normaliser
from flatout.sb3.fused_engine import ArrayEnvs, FusedEngine
from flatout.sb3.host_engine import HostEngine
from flatout.sb3.knowledge import Knowledge, new_knowledge
from flatout.sb3.logger import new_logger, record_episodes, record_update
from flatout.sb3.policy import MlpPolicy
from flatout.sb3.waiting_engine import AsyncEngine, WaitingEnvs

READ_AT_EVERY_UPDATE = (
    "learning_rate", "n_epochs", "gamma", "gae_lambda", "clip_range", "clip_range_vf",
    "normalize_advantage",
    "ent_coef", "vf_coef", "max_grad_norm", "target_kl",
)  # fmt: skip


class PPO:
    """Proximal policy optimisation with the arguments and methods of Stable-Baselines3.

    >>> model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, seed=0, device="cpu").learn(128)
    >>> model.num_timesteps
    128
    >>> action, _ = model.predict(np.zeros(4, np.float32), deterministic=True)
    """

    def __init__(
        self,
        policy: Any,
        env: Any,
        learning_rate: Any = 3e-4,
        n_steps: int = 2048,
        batch_size: int = 64,
        n_epochs: int = 10,
        gamma: float = 0.99,
        gae_lambda: float = 0.95,
        clip_range: Any = 0.2,
        clip_range_vf: Any = None,
        normalize_advantage: bool = True,
        ent_coef: float = 0.0,
        vf_coef: float = 0.5,
        max_grad_norm: float = 0.5,
        use_sde: bool = False,
        sde_sample_freq: int = -1,
        rollout_buffer_class: Any = None,
        rollout_buffer_kwargs: dict[str, Any] | None = None,
        target_kl: float | None = None,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: Any = "auto",
        _init_setup_model: bool = True,
        *,
        # flatout.slow_envs.overlap.Overlap: how waits and learning overlap, for a list of envs
        overlap: Any = None,
    ) -> None:
        given = {
            name: value for name, value in locals().items() if name not in ("self", "policy", "env")
        }
        arguments.check_policy_name(policy)
        self._set_arguments(given)
        self._attach(source_of(env, self.overlap), None)
        self.set_random_seed(seed)

    # --- what it is made of
    # ----------------------------------------------------------------------------

    def _set_arguments(self, given: dict[str, Any]) -> None:
        """Attributes under the names that scripts and callbacks know."""
        arguments.check_unsupported(given)
        arguments.check_numbers(given)
        self.policy_kwargs = dict(given["policy_kwargs"] or {})
        self.architecture = arguments.policy_of(self.policy_kwargs)
        self.normalize_advantage: bool = given["normalize_advantage"]
        for name in READ_AT_EVERY_UPDATE:
            setattr(self, name, given[name])
        self.lr_schedule = arguments.schedule_of(given["learning_rate"])
        self._n_steps, self._batch_size = int(given["n_steps"]), int(given["batch_size"])
        self._stats_window_size = int(given["stats_window_size"])
        self.tensorboard_log = (
            None if given["tensorboard_log"] is None else str(given["tensorboard_log"])
        )
        self.verbose, self.seed, self.asked_device = (
            given["verbose"],
            given["seed"],
            given["device"],
        )
        self.use_sde = False
        self.num_timesteps = self._num_timesteps_at_start = self._total_timesteps = (
            self._n_updates
        ) = 0
        self.start_time, self._current_progress_remaining = 0.0, 1.0
        self.ep_info_buffer: deque[Any] | None = None
        self.ep_success_buffer: deque[Any] | None = None
        self._logger: Any = None
        self._custom_logger = False
        self._log_in_file: str | None = None  # the folder that a model's file names, not its user
        self.overlap = given["overlap"]
        self.engine: HostEngine | FusedEngine | AsyncEngine | None = None
        self.policy = MlpPolicy(self)
        self._seed = fresh_seed() if self.seed is None else int(self.seed) % 2**32
        self.prediction_noise = np.random.default_rng(self._seed)

    def _attach(self, source: Any, known: Knowledge | None) -> None:
        """Take environments and the engine that runs them."""
        flat_spaces.check_spaces(source.observation_space, source.action_space)
        self.observation_space, self.action_space = source.observation_space, source.action_space
        self.n_envs = int(source.n_envs if isinstance(source, ArrayEnvs) else source.num_envs)
        self._check_rollout(isinstance(source, ArrayEnvs))
        known = self._beginning() if known is None else known
        self._release()
        self.engine = engine_for(source)(source, self, known)
        if self.verbose >= 1:
            print(f"Using {self.device} device, {self.n_envs} environments")

    def _beginning(self) -> Knowledge:
        """A network that has learned nothing."""
        sizes = flat_spaces.sizes_of(
            self.observation_space, self.action_space, self.architecture.hidden
        )
        return new_knowledge(new_network(sizes, self._seed, self.architecture.log_std), self._seed)

    def _check_rollout(self, fused: bool) -> None:
        """Refuse or warn of rollouts that do not suit the minibatches."""
        rollout = self.n_steps * self.n_envs
        if rollout < 2 and self.normalize_advantage:
            raise SettingsError(
                "n_steps x n_envs is 1; advantages are normalised over a rollout: give more steps"
            )
        if not fused and rollout % self.batch_size and rollout > self.batch_size:
            warnings.warn(
                f"batch_size is {self.batch_size}, which does not divide n_steps x n_envs = "
                f"{rollout}: the last "
                f"minibatch of each epoch has {rollout % self.batch_size} transitions",
                stacklevel=4,
            )

    @property
    def n_steps(self) -> int:
        """Steps of each environment between two updates; fixed."""
        return self._n_steps

    @property
    def batch_size(self) -> int:
        """Transitions of a minibatch; fixed."""
        return self._batch_size

    @property
    def device(self) -> Any:
        """Where it learns."""
        if isinstance(self.engine, HostEngine):
            return sys.modules["torch"].device(self.engine.device)
        return "cpu" if self.engine is None else self.engine.device

    @property
    def network(self) -> Network:
        """The weights as NumPy has them."""
        return self._loaded.network if self.engine is None else self.engine.network

    @property
    def known(self) -> Knowledge:
        """All that was learned."""
        return self._loaded if self.engine is None else self.engine.known

    @property
    def market(self) -> Any:
        """The market that it learns in, or None."""
        return self.engine.envs.market if isinstance(self.engine, FusedEngine) else None

    def set_network(self, network: Network) -> None:
        """Other weights; Adam's memory stays."""
        self._know(self.known._replace(network=network))

    def _know(self, known: Knowledge) -> None:
        """Go on from there."""
        if self.engine is None:
            self._loaded = known
        else:
            self.engine.know(known)

    # --- environments
    # ------------------------------------------------------------------------------------

    @property
    def env(self) -> Any:
        """The environments with Stable-Baselines3's face, or None."""
        known_to_sb3()  # it may have been loaded since they were made
        return None if self.engine is None else self.engine.venv

    def get_env(self) -> Any:
        """The same."""
        return self.env

    def get_vec_normalize_env(self) -> Any:
        """Stable-Baselines3's VecNormalize around the environments, or None."""
        return unwrapped_normaliser(self.env)

    def set_env(self, env: Any, force_reset: bool = True) -> None:
        """Learn in other environments of the same spaces and number from now on."""
        source = source_of(env, self.overlap)
        n_envs = int(source.n_envs if isinstance(source, ArrayEnvs) else source.num_envs)
        if self.engine is not None and n_envs != self.n_envs:
            raise SettingsError(
                f"{n_envs} environments were given, this model has {self.n_envs}: give as many, "
                f"or save it and use "
                "`PPO.load(path, env)`"
            )
        self._check_same_spaces(source)
        if not force_reset:
            raise SettingsError(
                "force_reset is False; other environments begin anew here: leave it True"
            )
        self._attach(source, self.known)

    def _check_same_spaces(self, source: Any) -> None:
        for name in ("observation_space", "action_space"):
            given, own = getattr(source, name), getattr(self, name)
            if given != own:
                raise SettingsError(
                    f"the {name.replace('_', ' ')} is {given}, this model's is {own}"
                )

    def set_random_seed(self, seed: int | None = None) -> None:
        """Seed Python, NumPy, the action space, the environments and the learner's noise."""
        if seed is None:
            return
        random.seed(seed)
        np.random.seed(seed % 2**32)
        self._seed = seed % 2**32
        self.prediction_noise = np.random.default_rng(self._seed)
        self.action_space.seed(seed)
        if self.engine is not None:
            self.engine.reseed(self._seed)

    # --- learning
    # ----------------------------------------------------------------------------------------

    def learn(
        self,
        total_timesteps: int,
        callback: Any = None,
        log_interval: int | None = 1,
        tb_log_name: str = "PPO",
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> "PPO":
        """Learn for at least this many steps, whole rollouts of them."""
        if self.engine is None:
            raise SettingsError(
                "this model has no environment: give one with `set_env`, or `PPO.load(path, "
                "env=env)`"
            )
        total_timesteps = self._begin(total_timesteps, tb_log_name, reset_num_timesteps)
        calls = Calls(callback, progress_bar, self)
        calls.training_start({
            "self": self, "total_timesteps": total_timesteps, "callback": callback,
            "log_interval": log_interval,
            "tb_log_name": tb_log_name, "reset_num_timesteps": reset_num_timesteps,
            "progress_bar": progress_bar,
        }, globals())  # fmt: skip
        try:
            self._update_until(total_timesteps, calls, log_interval)
        finally:
            self._release()
        calls.training_end()
        if not self._custom_logger:
            self.logger.close()
        return self

    def _update_until(self, total_timesteps: int, calls: Calls, log_interval: int | None) -> None:
        """Updates until there were so many steps, or a callback wants no more."""
        assert self.engine is not None
        iteration, going = 0, True
        while going and self.num_timesteps < total_timesteps:
            metrics, going = self.engine.update(self, calls)
            if metrics is not None:
                iteration += 1
                self._note_update(metrics)
                if log_interval is not None and iteration % log_interval == 0:
                    self.dump_logs(iteration)

    def _release(self) -> None:
        """End what an engine runs between updates."""
        if self.engine is not None:
            self.engine.end()

    def _begin(self, total_timesteps: int, tb_log_name: str, anew: bool) -> int:
        """Counters, buffers, environments and logger of a training; the step at which it ends."""
        assert self.engine is not None
        self.start_time = time.time_ns()
        if anew or self.ep_info_buffer is None:
            self.ep_info_buffer = deque(maxlen=self._stats_window_size)
            self.ep_success_buffer = deque(maxlen=self._stats_window_size)
        self.num_timesteps = 0 if anew else self.num_timesteps
        self._num_timesteps_at_start = self.num_timesteps
        self._total_timesteps = (
            arguments.whole("total_timesteps", int(total_timesteps)) + self.num_timesteps
        )
        self.engine.begin(anew)
        if not self._custom_logger:
            folder = self.tensorboard_log
            folder = saving.inner_folder(folder) if folder == self._log_in_file else folder
            self._logger = new_logger(self.verbose, folder, tb_log_name, anew)
        return self._total_timesteps

    def note_progress(self) -> None:
        """How much of the training remains: what schedules are asked with."""
        self._current_progress_remaining = 1.0 - self.num_timesteps / self._total_timesteps

    def note_episodes(self, infos: Any, dones: Any) -> None:
        """Keep what finished episodes earned, for the means that are logged."""
        assert self.ep_info_buffer is not None and self.ep_success_buffer is not None
        for k, info in enumerate(infos):
            if "episode" in info:
                self.ep_info_buffer.append(info["episode"])
            if dones[k] and info.get("is_success") is not None:
                self.ep_success_buffer.append(info["is_success"])

    def _note_update(self, metrics: dict[str, float]) -> None:
        """Record what an update measured; refuse to go on where it is not finite."""
        if not np.isfinite(metrics["loss"]):
            raise FlatoutError(
                f"the loss is {metrics['loss']} after {self.num_timesteps} steps: rewards or "
                f"observations are not "
                "finite, or far too large; check the environment, scale it, or lower learning_rate"
            )
        self._n_updates += round(metrics["epochs"])
        record_update(self.logger, metrics, arguments.scheduled_now(self))
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")

    def dump_logs(self, iteration: int = 0) -> None:
        """Write down what was recorded, with the means over the last episodes and the speed."""
        elapsed = max((time.time_ns() - self.start_time) / 1e9, sys.float_info.epsilon)
        if iteration:
            self.logger.record("time/iterations", iteration, exclude="tensorboard")
        record_episodes(self.logger, self.ep_info_buffer or (), self.ep_success_buffer or ())
        self.logger.record(
            "time/fps", int((self.num_timesteps - self._num_timesteps_at_start) / elapsed)
        )
        self.logger.record("time/time_elapsed", int(elapsed), exclude="tensorboard")
        self.logger.record("time/total_timesteps", self.num_timesteps, exclude="tensorboard")
        self.logger.dump(self.num_timesteps)

    @property
    def logger(self) -> Any:
        """What records are given to; there is one after `learn` began or `set_logger`."""
        if self._logger is None:
            raise SettingsError("there is no logger before `learn` or `set_logger`")
        return self._logger

    def set_logger(self, logger: Any) -> None:
        """Give records to this one: flatout's or Stable-Baselines3's."""
        self._logger, self._custom_logger = logger, True

    # --- acting, saving, loading
    # ----------------------------------------------------------------------------

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[Any, Any]:
        """Actions for one observation or several, and the state as it was given."""
        return self.policy.predict(observation, state, episode_start, deterministic)

    def get_parameters(self) -> dict[str, Any]:
        """The weights under Stable-Baselines3's names."""
        return {"policy": self.policy.state_dict()}

    def set_parameters(
        self, load_path_or_dict: Any, exact_match: bool = True, device: Any = "auto"
    ) -> None:
        """Take over weights by those names, or all that a file knows."""
        if not isinstance(load_path_or_dict, dict):
            known = saving.read(load_path_or_dict).known
            saving.check_network(known.network, self.network)
            self._know(known)
            return
        unknown = sorted(set(load_path_or_dict) - {"policy"})
        if unknown or "policy" not in load_path_or_dict:
            raise SettingsError(
                f"the parameters are {sorted(load_path_or_dict)}; this model takes 'policy': "
                f"the optimiser begins anew"
            )
        self.policy.load_state_dict(load_path_or_dict["policy"], exact_match)

    def save(self, path: Any, exclude: Any = None, include: Any = None) -> None:
        """Write weights, optimiser and arguments into one .zip file of JSON and safetensors; no
        environment.
        """
        if exclude or include:
            raise SettingsError(
                "exclude and include are not offered: a file always holds the same things"
            )
        saving.write(self, path)

    @classmethod
    def load(
        cls,
        path: Any,
        env: Any = None,
        device: Any = "auto",
        custom_objects: dict[str, Any] | None = None,
        print_system_info: bool = False,
        force_reset: bool = True,
        **kwargs: Any,
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
        saved = saving.read(path)
        model, changes = cls.__new__(cls), {**(custom_objects or {}), **kwargs}
        model._set_arguments(saving.arguments_of(saved, device, changes))
        model._log_in_file = None if "tensorboard_log" in changes else model.tensorboard_log
        saving.restore(model, saved)
        if env is not None:
            source = source_of(env, model.overlap)
            model._check_same_spaces(source)
            model._attach(source, model._loaded)
            model.set_random_seed(model.seed)
        return model

    def save_bundle(self, path: Path | str, settings: Any = None) -> None:
        """Write the policy as a flatout Bundle; `settings` are those that the market was built
        with, if not default.
        """
        saving.bundle_of(self, settings).save(path)


def engine_for(source: Any) -> Any:
    """The engine that runs such environments."""
    if isinstance(source, ArrayEnvs):
        return FusedEngine
    return AsyncEngine if isinstance(source, WaitingEnvs) else HostEngine


def fresh_seed() -> int:
    """A seed that nobody chose."""
    return int(np.random.SeedSequence().generate_state(1)[0])
