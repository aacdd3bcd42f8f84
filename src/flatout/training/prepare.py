"""From a request to a training that can start: bars, markets, lanes and devices. Nothing is
written.
"""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from flatout.bars.source import BarsSource, wanted_extras
from flatout.errors import RulesError, RunError
from flatout.learners.engines import engine_of
from flatout.settings.loading import Resolved
from flatout.settings.tables import Settings
from flatout.training.market_training import Agent, MarketTraining, make_agent, make_training
from flatout.training.plan import Plan, make_plan
from flatout.training.request import TrainRequest, write_request
from flatout.workers.devices import DeviceChoice, choose_devices

PORTFOLIO = "portfolio"
KEPT_BARS = "bars.parquet"  # bars that were in memory, in the run's folder


@dataclass(frozen=True)
class PreparedTraining:
    """A training before its workers start."""

    request: TrainRequest  # with what was chosen, so that it can be repeated
    resolved: Resolved
    source: BarsSource
    made: MarketTraining
    chosen: DeviceChoice

    @property
    def plan(self) -> Plan:
        """What it will take, without a trial."""
        return make_plan(self.made.training, self.chosen.slots, self.chosen.free_bytes)


def prepare_training(
    request: TrainRequest, resolved: Resolved, source: BarsSource
) -> PreparedTraining:
    """Bars, lanes and workers; bars that are not those of a run that goes on are refused."""
    agents = make_agents(request, resolved, source)
    found = {agent.name: agent.market.panel.fingerprint for agent in agents}
    # the built-in market is made anew, and another CPU may round its last digits otherwise
    comparable = request.bars is not None
    if comparable and request.fingerprints is not None and request.fingerprints != found:
        raise RunError(
            f"the bars have changed since the run was started ({request.bars}): put "
            "the old ones back, or start a new run"
        )
    lanes = len(agents) * request.seeds
    chosen = choose_devices(resolved.settings.train.engine, request.device, lanes, request.workers)
    train = resolved.settings.train.model_copy(update={"engine": chosen.engine})
    made = make_training(
        agents,
        resolved.settings.model_copy(update={"train": train}),
        seeds=range(request.seed, request.seed + request.seeds),
        timesteps=request.timesteps,
        workers=len(chosen.slots),
        evaluations=request.evaluations,
        index_only=request.index_only,
        free=chosen.free_bytes,
    )
    if request.updates is not None:
        made = made.with_updates(request.updates)
    settled = replace(
        request,
        workers=len(chosen.slots),
        index_only=made.training.program.index_only,
        fingerprints=found,
    )
    return PreparedTraining(settled, resolved, source, made, chosen)


def make_agents(request: TrainRequest, resolved: Resolved, source: BarsSource) -> list[Agent]:
    """One agent per symbol that was asked for, or one for all of them."""
    if request.symbols is None or request.portfolio:
        panels, names = [source.read()], [PORTFOLIO]
    else:
        twice = sorted({name for name in request.symbols if request.symbols.count(name) > 1})
        if twice:
            raise RulesError(f"symbols name {', '.join(twice)} twice: name each once")
        panels, names = source.read_each(), request.symbols
    return [
        make_agent(name, panel, resolved.settings, request.held_out)
        for name, panel in zip(names, panels, strict=True)
    ]


def start_run(prepared: PreparedTraining, out: Path) -> Path:
    """A new run folder that knows what was asked. What memory and devices decided stays so: a
    resumed run must not choose anew. Bars in memory are kept in the folder.
    """
    program, resolved = prepared.made.training.program, prepared.resolved
    settled = {"n_envs": program.n_envs, "engine": engine_of(program.environment)}
    train = resolved.settings.train.model_copy(update=settled)
    settings = resolved.settings.model_copy(update={"train": train})
    known = resolved.model_copy(update={"settings": settings})
    name = "-".join(agent.name for agent in prepared.made.agents[:3])
    request = prepared.request
    if prepared.source.in_memory:
        request = replace(request, bars=KEPT_BARS)  # relative to the folder, which may be moved
    run = write_request(out, name, request, known)
    try:
        prepared.source.keep(run / KEPT_BARS)
    except BaseException:
        shutil.rmtree(run)  # a run that could not go on is none
        raise
    return run


def source_of_run(request: TrainRequest, run: Path, settings: Settings) -> BarsSource:
    """The bars of a run that goes on."""
    bars = str(run / KEPT_BARS) if request.bars == KEPT_BARS else request.bars
    symbols = tuple(request.symbols) if request.symbols else None
    extras = wanted_extras(settings)
    return BarsSource(
        bars, symbols, request.bar, seed=request.seed, extras=extras, calendar=request.calendar
    )
