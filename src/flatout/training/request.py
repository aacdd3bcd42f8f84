"""What was asked of `flatout train`, kept in the run's folder so that the run can go on after any
interruption.
"""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from flatout.bars.panel import Panel
from flatout.bars.read import read_bars
from flatout.bars.resample import resample
from flatout.bars.synthetic import built_in_market
from flatout.errors import BundleError, RulesError, RunError
from flatout.file_names import file_name
from flatout.foreign import read_json
from flatout.learners.engines import engine_of
from flatout.policies.bundle import Bundle
from flatout.runs import check_links, create_run, runs_folder, versions
from flatout.settings.loading import Resolved
from flatout.training.market_training import Agent, MarketTraining, make_agent, make_training
from flatout.training.training import finished_lanes
from flatout.workers.devices import Choice, settle

PORTFOLIO = "portfolio"
MOST_TIMESTEPS, MOST_SEEDS, MOST_EVALUATIONS, MOST_WORKERS, MOST_SEED = (
    10**15,
    10_000,
    10**6,
    1024,
    2**31 - 1,
)
LEAST_HELD_OUT, MOST_HELD_OUT = 0.01, 0.9
NOT_A_RUN = "give --resume the folder of a `flatout train` run that can go on"


@dataclass(frozen=True)
class Request:
    """The command's options that decide what is trained."""

    bars: str | None
    symbols: list[str] | None
    portfolio: bool
    bar: str | None
    timesteps: Annotated[int, Field(ge=1, le=MOST_TIMESTEPS)]
    updates: Annotated[int, Field(ge=1, le=MOST_TIMESTEPS)] | None  # instead of timesteps
    seed: Annotated[int, Field(ge=0, le=MOST_SEED)]
    seeds: Annotated[int, Field(ge=1, le=MOST_SEEDS)]
    held_out: Annotated[float, Field(ge=LEAST_HELD_OUT, le=MOST_HELD_OUT)]
    evaluations: Annotated[int, Field(ge=1, le=MOST_EVALUATIONS)]
    workers: Annotated[int, Field(ge=1, le=MOST_WORKERS)] | None
    device: str | None = None
    index_only: bool | None = None  # trajectories; None = let the memory decide
    fingerprints: dict[str, str] | None = None  # of the bars of each agent


class About(BaseModel):
    """What `about.json` must say."""

    verb: Literal["train"]
    request: Request


def build(request: Request, resolved: Resolved) -> tuple[MarketTraining, Choice, Request]:
    """Bars, lanes and workers; the request with what was chosen, so that it can be repeated."""
    agents = make_agents(request, resolved)
    found = {agent.name: agent.market.panel.fingerprint for agent in agents}
    if request.fingerprints is not None and request.fingerprints != found:
        raise RunError(
            f"the bars have changed since the run was started ({request.bars or 'built in'}): put "
            f"the old ones back, "
            "or start a new run"
        )
    lanes = len(agents) * request.seeds
    chosen = settle(resolved.settings.train.engine, request.device, lanes, request.workers)
    slots = chosen.slots
    train = resolved.settings.train.model_copy(update={"engine": chosen.engine})
    settings = resolved.settings.model_copy(update={"train": train})
    seeds = range(request.seed, request.seed + request.seeds)
    made = make_training(
        agents, settings, seeds, request.timesteps, len(slots), request.evaluations,
        request.index_only,
        chosen.free_bytes,
    )  # fmt: skip
    if request.updates is not None:
        made = made.shortened(request.updates)
    index_only = made.training.program.index_only
    return (
        made,
        chosen,
        replace(request, workers=len(slots), index_only=index_only, fingerprints=found),
    )


def make_agents(request: Request, resolved: Resolved) -> list[Agent]:
    """One agent per symbol, or one for all."""
    if request.symbols is None or request.portfolio:
        panel = panel_of(request, request.symbols)
        return [make_agent(PORTFOLIO, panel, resolved.settings, request.held_out)]
    twice = sorted({name for name in request.symbols if request.symbols.count(name) > 1})
    if twice:
        raise RulesError(f"--symbols names {', '.join(twice)} twice")
    return [
        make_agent(name, panel_of(request, [name]), resolved.settings, request.held_out)
        for name in request.symbols
    ]


def panel_of(request: Request, symbols: list[str] | None) -> Panel:
    """The bars of some symbols."""
    if request.bars is None:
        if symbols is not None:
            raise RulesError("--symbols needs --bars: the built-in market has symbols of its own")
        return built_in_market(seed=request.seed)
    panel = read_bars(Path(request.bars), symbols=symbols)
    return resample(panel, request.bar) if request.bar else panel


def start_run(out: Path, request: Request, resolved: Resolved, made: MarketTraining) -> Path:
    """A new run folder that knows what was asked. What memory and devices decided stays so: a
    resumed run must not choose anew.
    """
    runs_folder(out)
    program = made.training.program
    settled = {"n_envs": program.n_envs, "engine": engine_of(program.environment)}
    chosen = resolved.settings.train.model_copy(update=settled)
    known = resolved.model_copy(
        update={"settings": resolved.settings.model_copy(update={"train": chosen})}
    )
    name = "-".join(agent.name for agent in made.agents[:3])
    return create_run(out, f"train-{name}", known, {"verb": "train", "request": asdict(request)})


def read_request(run: Path) -> tuple[Request, Resolved]:
    """What a run was asked to do."""
    about = read_json(run / "about.json", About, cure=NOT_A_RUN)
    resolved = read_json(run / "settings.json", Resolved, cure=NOT_A_RUN)
    check_links(run)
    return about.request, resolved


def save_bundles(
    run: Path, made: MarketTraining, resolved: Resolved, request: Request
) -> list[str]:
    """The best and the last policy of every lane that has a checkpoint; what could not be saved, in
    sentences.
    """
    program, refused = made.training.program, []
    for result in finished_lanes(made.training, run, request.workers or 1):
        market = made.agent_of[result.lane.name].market
        for name, network, updates in (
            ("best", result.best, result.best_updates),
            ("last", result.last, result.updates),
        ):
            notes: dict[str, Any] = {
                "lane": result.lane.name,
                "seed": result.lane.seed,
                "updates": updates,
                "timesteps": updates * program.rollout,
                "best_held_out_reward": result.best_score if updates else None,
                "versions": versions(),
            }
            try:
                Bundle(
                    network, program.activation, program.distribution, market.fitted,
                    resolved.settings.market,
                    notes=notes,
                ).save(run / file_name(result.lane.name) / name)  # fmt: skip
            except BundleError as error:  # one agent that diverged must not cost the others
                refused.append(f"{result.lane.name}/{name} is not saved: {error}")
    return refused
