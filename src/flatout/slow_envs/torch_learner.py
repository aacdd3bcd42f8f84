"""Learns from batches of segments of bounded age, in PyTorch. Knows neither environments nor
processes.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import array_api_compat.torch as xp
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flatout.arrays import leaves_of, map_leaves
from flatout.learners.hyperparameters import ADAM_EPSILON, KL_TOLERANCE
from flatout.learners.off_policy import Trust, decoupled_loss, effective_share, vtrace, vtrace_loss
from flatout.learners.ppo_math import PolicyLoss, explained_variance, normalise, value_loss
from flatout.slow_envs.learner_state import Assignment, LearnerState
from flatout.slow_envs.learning import UpdateResult
from flatout.slow_envs.model import PolicyModel, Weights, flatten_weights, unflatten_weights
from flatout.slow_envs.overlap import Overlap, Rule
from flatout.slow_envs.tape import Segment

NO_LIMIT = float("inf")


class Rows(NamedTuple):
    """What an update learns from: (row, ...) each, rows that act and are young enough."""

    observation: Tensor
    raw: Tensor
    behaviour: Tensor  # log-probability by whoever acted
    proximal: Tensor  # by the policy at the start of the update
    advantage: Tensor
    target: Tensor
    value: Tensor


class MinibatchFigures(NamedTuple):
    """What is measured of one minibatch; the names are those of an update's figures."""

    policy_loss: float
    value_loss: float
    entropy: float
    approx_kl: float
    clip_fraction: float
    loss: float


class TorchSegmentLearner:
    """One agent and its optimiser; every batch of segments makes one update."""

    def __init__(
        self, model: PolicyModel, rule: Rule, overlap: Overlap, weights: Weights, seed: int = 0
    ) -> None:
        self.model, self.rule, self.overlap, self.version = model, rule, overlap, 0
        self.weights = map_leaves(
            lambda leaf: torch.as_tensor(np.array(leaf, np.float32)).requires_grad_(), weights
        )
        self.leaves = [leaf for leaf in leaves_of(self.weights) if leaf.numel()]
        self.optimiser = torch.optim.Adam(
            self.leaves, rule.learning_rate, eps=ADAM_EPSILON, fused=True
        )
        self.seed = seed

    # --- an update

    def update(self, batch: Segment) -> UpdateResult:
        """Learn from a batch of segments (row, segment, ...); the version goes up by one."""
        lag = self.version - batch.version
        fresh = batch.acting & (lag <= self.overlap.max_lag)
        too_old = int((batch.acting & ~fresh).sum())
        figures: dict[str, float] = {}
        if fresh.any():
            rows, figures = self.rows_of(batch, fresh)
            figures |= self.descend(rows)
        self.version += 1
        return UpdateResult(self.version, figures, Counter(lag[fresh].tolist()), too_old)

    def is_worth_reusing(self, batch: Segment) -> bool:
        """Whether the policy is still close enough to those that acted in this batch to learn from
        it again.
        """
        fresh = batch.acting & (self.version - batch.version <= self.overlap.max_lag)
        if not fresh.any():
            return False
        with torch.no_grad():
            log_prob = self.log_probs(
                torch.as_tensor(batch.observation[:-1][fresh]), torch.as_tensor(batch.raw[fresh])
            )
            log_ratio = log_prob - torch.as_tensor(batch.log_prob[fresh])
            ratio = torch.exp(log_ratio)
            distance = float(torch.mean(ratio - 1 - log_ratio))
            share = float(effective_share(ratio, xp))
        return (
            share >= self.overlap.reuse.least_effective
            and distance <= self.overlap.reuse.largest_kl
        )

    def log_probs(self, observation: Tensor, raw: Tensor) -> Tensor:
        """Log-probabilities of these actions by the policy as it is now."""
        return self.model.policy(self.weights, observation, xp).log_prob(raw, xp)

    def rows_of(self, batch: Segment, fresh: NDArray[np.bool_]) -> tuple[Rows, dict[str, float]]:
        """The batch corrected for its age, without the rows that teach nothing."""
        arrays = map_leaves(torch.as_tensor, batch)
        with torch.no_grad():
            return self.correct_rows(arrays, torch.as_tensor(fresh))

    def correct_rows(self, arrays: Segment, chosen: Tensor) -> tuple[Rows, dict[str, float]]:
        """The chosen rows with advantages and targets, and how well they suit the policy; the
        segment's arrays are tensors here.
        """
        value = self.model.value(self.weights, arrays.observation, xp)
        seen = arrays.observation[:-1]
        proximal = self.log_probs(seen, arrays.raw)
        ratio = torch.exp(proximal - arrays.log_prob)
        trust = Trust(self.overlap.rho, self.overlap.trace, self.rule.gae_lambda)
        corrected = vtrace(
            arrays.reward,
            value=value,
            terminated=arrays.terminated,
            acting=arrays.acting,
            ratio=ratio,
            gamma=self.rule.gamma,
            trust=trust,
            xp=xp,
        )
        parts = (seen, arrays.raw, arrays.log_prob, proximal, *corrected, value[:-1])
        rows = Rows(*(part[chosen] for part in parts))
        return rows, {
            "effective_share": float(effective_share(ratio[chosen], xp)),
            "explained_variance": float(explained_variance(rows.value, rows.target, xp)),
            "rows": int(chosen.sum()),
        }

    def descend(self, rows: Rows) -> dict[str, float]:
        """Epochs of minibatches, until they are done or the policy has moved too far."""
        rule, count = self.rule, rows.value.shape[0]
        made: list[MinibatchFigures] = []
        epochs = 0
        rng = np.random.default_rng([self.seed, self.version])
        limit = KL_TOLERANCE * rule.target_kl if rule.target_kl is not None else NO_LIMIT
        for _ in range(rule.epochs):
            epochs += 1
            order = torch.as_tensor(rng.permutation(count))
            for chosen in torch.split(order, rule.minibatch):
                loss, figures = self.compute_loss(Rows(*(part[chosen] for part in rows)))
                if figures.approx_kl > limit:
                    return self.mean_figures(made or [figures], epochs)
                self.step(loss)
                made.append(figures)
        return self.mean_figures(made, epochs)

    def compute_loss(self, rows: Rows) -> tuple[Tensor, MinibatchFigures]:
        """The loss of a minibatch, and its figures."""
        rule = self.rule
        policy = self.model.policy(self.weights, rows.observation, xp)
        advantage = normalise(rows.advantage, xp) if rule.normalise_advantage else rows.advantage
        surrogate = self.policy_loss()(
            policy.log_prob(rows.raw, xp), rows.proximal, rows.behaviour, advantage
        )
        value_clip = torch.tensor(NO_LIMIT if rule.value_clip is None else rule.value_clip)
        error = value_loss(
            self.model.value(self.weights, rows.observation, xp),
            old_value=rows.value,
            returns=rows.target,
            clip=value_clip,
            xp=xp,
        )
        entropy = torch.mean(policy.entropy(rows.raw, xp))
        loss = surrogate.loss + rule.value * error - rule.entropy * entropy
        parts = {
            "policy_loss": surrogate.loss,
            "value_loss": error,
            "entropy": entropy,
            "approx_kl": surrogate.approx_kl,
            "clip_fraction": surrogate.clip_fraction,
            "loss": loss,
        }
        # one conversion for all of them
        values = torch.stack([part.detach() for part in parts.values()]).tolist()
        return loss, MinibatchFigures(**dict(zip(parts, values, strict=True)))

    def policy_loss(self) -> Callable[..., PolicyLoss]:
        """The function that computes the policy's part of the loss, by `overlap.objective`."""
        rho = self.overlap.rho
        if self.overlap.objective == "vtrace":
            return partial(vtrace_loss, rho=rho, xp=xp)
        return partial(decoupled_loss, clip=self.rule.clip, cap=rho, xp=xp)

    def step(self, loss: Tensor) -> None:
        """One step of Adam along the clipped gradient."""
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        longest = NO_LIMIT if self.rule.max_grad_norm is None else self.rule.max_grad_norm
        torch.nn.utils.clip_grad_norm_(self.leaves, longest)
        self.optimiser.step()

    @staticmethod
    def mean_figures(made: list[MinibatchFigures], epochs: int) -> dict[str, float]:
        """Means over the minibatches of an update, and how many there were."""
        means = MinibatchFigures(*np.mean(made, axis=0).tolist())
        return {
            **means._asdict(),
            "epochs": float(epochs),
            "minibatches": float(len(made)),
        }

    # --- what was learned

    @property
    def vector(self) -> NDArray[np.float32]:
        """All weights, in one vector: a copy."""
        return flatten_weights(map_leaves(lambda leaf: leaf.detach().numpy(), self.weights))

    @property
    def state(self) -> LearnerState:
        """All that was learned, as copies: weights and Adam's moments."""
        states = [self.optimiser.state.get(leaf, {}) for leaf in self.leaves]

        def moment(name: str) -> NDArray[np.float32]:
            parts = [
                state.get(name, torch.zeros_like(leaf).detach()).reshape(-1)
                for state, leaf in zip(states, self.leaves, strict=True)
            ]
            return torch.cat(parts).numpy()

        return LearnerState(
            vector=self.vector,
            first=moment("exp_avg"),
            second=moment("exp_avg_sq"),
            steps=int(states[0].get("step", 0)),
            version=self.version,
        )

    def load_state(self, state: LearnerState) -> None:
        """Go on from a state that was saved."""
        self.version = state.version
        with torch.no_grad():
            saved = unflatten_weights(
                state.vector, map_leaves(lambda leaf: leaf.detach().numpy(), self.weights)
            )
            for leaf, kept in zip(leaves_of(self.weights), leaves_of(saved), strict=True):
                leaf.copy_(torch.as_tensor(kept))
        sizes = [leaf.numel() for leaf in self.leaves]
        moments = [
            torch.split(torch.as_tensor(part), sizes) for part in (state.first, state.second)
        ]
        for leaf, mu, nu in zip(self.leaves, *moments, strict=True):
            self.optimiser.state[leaf] = {
                "step": torch.tensor(float(state.steps)),
                "exp_avg": mu.reshape(leaf.shape).clone(),
                "exp_avg_sq": nu.reshape(leaf.shape).clone(),
            }

    def change_rule(self, rule: Rule) -> None:
        """Learn by another rule from now on: rates follow schedules."""
        self.rule = rule
        self.optimiser.param_groups[0]["lr"] = rule.learning_rate


def new_learner(assignment: Assignment) -> TorchSegmentLearner:
    """A learner that goes on from the state in the assignment."""
    model = assignment.model
    learner = TorchSegmentLearner(
        model,
        rule=assignment.rule,
        overlap=assignment.overlap,
        weights=model.new_weights(assignment.seed),
        seed=assignment.seed,
    )
    learner.load_state(assignment.state)
    return learner


def use_one_thread() -> None:
    """Leave the other cores to the environments: small products gain little from more than one."""
    torch.set_num_threads(1)
