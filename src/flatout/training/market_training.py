"""From bars and settings to a training: which bars teach, which judge, and one lane per agent and
seed.

The scaler is fitted on teaching bars only. Agents of several symbols share one tape, one after
another; segments keep each on its own stretch.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from flatout.arrays import map_leaves
from flatout.bars.panel import Panel
from flatout.errors import RulesError
from flatout.features.recipe import fit_each
from flatout.learners.engines import market_environment
from flatout.learners.forecast import choose_program, usual_envs
from flatout.learners.rates import program_of, rates_of
from flatout.market.market import Market, build_market, recipe_of, segments
from flatout.market.rules import Rules
from flatout.market.starts import choose_episode_bars
from flatout.market.tape import join_tapes
from flatout.settings.tables import Settings
from flatout.training.training import Lane, Training

LEAST_BARS_HELD_OUT = 2


class Agent(NamedTuple):
    """One market that an agent shall learn."""

    name: str
    market: Market  # of all bars; features scaled by the teaching bars
    cut: int  # bars before it teach, from it on they judge


@dataclass(frozen=True)
class MarketTraining:
    """A training with the markets that its lanes live in."""

    training: Training
    agents: tuple[Agent, ...]
    agent_of: dict[str, Agent]  # by lane name

    def with_updates(self, updates: int) -> "MarketTraining":
        """This plan with fewer updates, judged after each."""
        return replace(self, training=replace(self.training, updates=updates, chunk=1))


def make_agent(name: str, panel: Panel, settings: Settings, held_out: float) -> Agent:
    """The market of some bars, of which the last share is held out."""
    cut = panel.n_bars - round(held_out * panel.n_bars)
    recipe = recipe_of(settings.features)
    warmup = recipe.count_warmup(panel)
    if cut < warmup + 2 or panel.n_bars - cut < LEAST_BARS_HELD_OUT:
        raise RulesError(
            f"{name}: {panel.n_bars} bars are too few: the features need {warmup} to warm "
            f"up, and the last {held_out:.0%} ({panel.n_bars - cut}) are held out; give more "
            "bars, another `hold_out` or shorter indicators"
        )
    [(fitted, features)] = fit_each(recipe, panel, [np.arange(cut)])
    return Agent(name, build_market(panel, settings, fitted, features), cut)


def make_training(
    agents: Sequence[Agent],
    settings: Settings,
    seeds: Sequence[int],
    timesteps: int,
    workers: int = 1,
    evaluations: int = 20,
    index_only: bool | None = None,
    free: int | None = None,
) -> MarketTraining:
    """One lane per agent and seed; `timesteps` for each. What is left open is chosen by the memory
    that is free.
    """
    shapes = {agent.market.shape for agent in agents}
    if len(shapes) > 1:
        raise RulesError(
            "agents of different shapes (assets, features, actions) cannot share one program"
        )
    arrays = [agent.market.arrays() for agent in agents]
    tape, offsets = join_tapes([tape for tape, _ in arrays])
    program = program_of(
        settings.train,
        market_environment(shapes.pop(), settings.train.engine),
        settings.train.n_envs or usual_envs(settings.train),
    )
    data_bytes = sum(array.nbytes for array in tape)
    program = choose_program(
        program,
        settings.train.n_envs,
        lanes=len(agents) * len(seeds),
        workers=workers,
        data_bytes=data_bytes,
        free=free,
    )
    if index_only is not None:
        program = program._replace(index_only=index_only)
    updates = max(1, -(-timesteps // program.rollout))
    lanes, agent_of = [], {}
    for agent, (_, rules), offset in zip(agents, arrays, offsets, strict=True):
        warm, stop = int(agent.market.rules.segments.first[0]), agent.market.panel.n_bars
        teach = bounded_rules(
            rules,
            offset,
            first=warm,
            stop=agent.cut,
            length=choose_episode_bars(settings.market.episode_bars, agent.cut - warm),
            n_bars=len(tape.features),
        )
        judge = bounded_rules(
            rules,
            offset,
            first=max(agent.cut, warm),
            stop=stop,
            length=None,
            n_bars=len(tape.features),
        )
        for seed in seeds:
            name = f"{agent.name}-seed{seed}"
            rates = rates_of(settings.train, updates, teach)
            lanes.append(
                Lane(
                    name,
                    seed,
                    rates=rates,
                    judged=judge,
                    hidden=settings.train.hidden,
                    log_std=settings.train.log_std,
                )
            )
            agent_of[name] = agent
    longest = max(agent.market.panel.n_bars - agent.cut for agent in agents)
    training = Training(
        program,
        tape,
        tuple(lanes),
        updates,
        max(1, updates // evaluations),
        eval_envs=1,
        eval_steps=longest,
    )
    return MarketTraining(training, tuple(agents), agent_of)


def bounded_rules(
    rules: Rules, offset: int, first: int, stop: int, length: int | None, n_bars: int
) -> Any:
    """Rules whose episodes stay inside some bars of one tape among several, as arrays that can be
    stacked.
    """
    bounds = segments([(offset + first, offset + stop)], length, n_bars)
    return map_leaves(np.asarray, rules._replace(segments=bounds))
