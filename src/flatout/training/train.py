"""`flatout.train`: agents trained at once as lanes of one program, judged on unseen bars."""

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple

from flatout.bars.read import name_symbols
from flatout.bars.source import Bars, find_source
from flatout.errors import BundleError, RulesError, RunError
from flatout.evaluation.assumptions import describe_market
from flatout.evaluation.held_out import judge_policies
from flatout.file_names import file_name
from flatout.foreign import parse_json, shorten_repr, to_path
from flatout.interrupts import keep_interrupts
from flatout.policies.bundle import Bundle
from flatout.runs import is_held, versions, write_json
from flatout.settings.fields import to_whole
from flatout.settings.loading import GivenSettings, Resolved, resolve_settings
from flatout.settings.train import EngineName
from flatout.terminal import progress_bar
from flatout.training.market_training import Agent, MarketTraining
from flatout.training.metrics_file import Row
from flatout.training.prepare import PreparedTraining, prepare_training, source_of_run, start_run
from flatout.training.progress import TrainingProgress
from flatout.training.request import (
    LEAST_SHARE_HELD_OUT,
    MOST_SHARE_HELD_OUT,
    TrainRequest,
    read_request,
)
from flatout.training.result import AgentResult, TrainingResult
from flatout.training.training import finished_lanes, train_lanes

EVALUATIONS = 20
MAY_STAND_BESIDE_RESUME = ("resume", "device", "progress", "plan", "json")  # of both doors
OnRows = Callable[[list[Row]], None]


def train(
    bars: Bars | None = None,
    *,
    symbols: Sequence[str] | None = None,
    portfolio: bool = False,
    bar: str | None = None,
    settings: GivenSettings = None,
    timesteps: int | None = None,
    seeds: int | None = None,
    hold_out: float | None = None,
    seed: int = 0,
    evaluations: int = EVALUATIONS,
    workers: int | None = None,
    engine: EngineName | None = None,
    device: str | None = None,
    out: Path | str = "runs",
    resume: Path | str | None = None,
    progress: bool = True,
) -> TrainingResult:
    """Train PPO agents in the market of some bars; saves the best and the last policy of each.

    bars       a file or folder, a Panel, a Polars or pandas frame; else `data.bars` of the
               settings; else the built-in random walk, on which nothing can be earned
    symbols    one agent for each of these; with `portfolio` one that trades them all. Without
               `symbols` one agent trades all that `data.symbols` names or the bars hold
    bar        resample to this bar size, as in "4h"
    settings   a path to flatout.toml, a dict of its tables, or `Settings`. FLATOUT__ variables
               stand over a path or None, as in the shell; a dict and `Settings` are taken alone
    timesteps  bars that each agent trades; stands over train.timesteps (500,000)
    seeds      agents per market; stands over train.seeds (1)
    hold_out   share of the bars, the last ones, that judge; stands over folds.hold_out (0.2)
    out        the folder in which the run's own folder is made
    seed       of everything random; a market's agents have seeds from it on
    evaluations  how often the agents are judged on the held-out bars and saved
    workers    processes; else one per GPU or CPU core
    engine     "jax", "torch" or "auto"; stands over train.engine
    device     "cpu", "cuda", "cuda:1", "rocm", "mps"; else the best there is
    resume     a run's folder: go on after an interruption; all else but `device` is as it was
    progress   a bar on a terminal or in a notebook, lines elsewhere

    >>> from flatout import train
    >>> import tempfile
    >>> result = train(timesteps=2048, settings={"train": {"n_envs": 8, "hidden": [8]}},
    ...                workers=1, evaluations=1, progress=False, out=tempfile.mkdtemp())
    >>> sorted(result.agents["portfolio"].metrics)
    ['buy_and_hold', 'cash', 'equal_weight', 'momentum', 'portfolio-seed0']
    >>> result.load_policy().predict([0.0] * 97).shape
    (6,)
    """
    given = list_given(train, locals())
    if resume is not None:
        refuse_beside_resume(given)
        run = to_path(resume, "`resume`")
        prepared = prepare_resumed(run, device)
    else:
        folder = to_path(out, "`out`")
        changes = {
            "train.timesteps": timesteps,
            "train.seeds": seeds,
            "train.engine": engine,
            "folds.hold_out": hold_out,
        }
        prepared = prepare_new(
            resolve_settings(settings, changes),
            bars,
            symbols=symbols,
            portfolio=portfolio,
            bar=bar,
            seed=seed,
            evaluations=evaluations,
            workers=workers,
            device=device,
        )
        run = start_run(prepared, folder)
    with keep_interrupts(), TrainingProgress(prepared.made, quiet=not progress) as shown:
        result = run_training(prepared, run, shown.show_rows, quiet=not progress)
    for sentence in result.warnings:
        warnings.warn(sentence, stacklevel=2)
    return result


def prepare_new(
    resolved: Resolved,
    bars: Bars | None = None,
    *,
    symbols: Sequence[str] | None = None,
    portfolio: bool = False,
    bar: str | None = None,
    seed: int = 0,
    updates: int | None = None,
    evaluations: int = EVALUATIONS,
    workers: int | None = None,
    device: str | None = None,
) -> PreparedTraining:
    """A new training; nothing is written yet."""
    settings = resolved.settings.for_training()
    resolved = resolved.model_copy(update={"settings": settings})
    seed, evaluations, workers = to_whole(seed), to_whole(evaluations), to_whole(workers)
    if type(portfolio) is not bool:
        raise RulesError(f"portfolio is {shorten_repr(portfolio)}: give True or False")
    named = name_symbols(symbols)
    source = find_source(resolved, bars, named, bar, seed)
    share = settings.folds.hold_out or 0.0
    if not LEAST_SHARE_HELD_OUT <= share <= MOST_SHARE_HELD_OUT:
        raise RulesError(
            f"folds.hold_out is {share:g}; a training holds out {LEAST_SHARE_HELD_OUT:g} to "
            f"{MOST_SHARE_HELD_OUT:g} of its bars, to judge the agents on"
        )
    asked = {
        "bars": source.path,
        "symbols": list(source.symbols) if source.symbols else None,
        # symbols of the settings are one market; those that the caller names are one each
        "portfolio": portfolio or (source.symbols is not None and not named),
        "bar": source.bar,
        "timesteps": settings.train.timesteps,
        "updates": updates,
        "seed": seed,
        "seeds": settings.train.seeds,
        "held_out": share,
        "evaluations": evaluations,
        "workers": workers,
        "device": device,
        "calendar": source.calendar,
    }
    text = json.dumps(asked, default=str)  # the form in which it is kept, and checked again
    request = parse_json(text, TrainRequest, "a training", RulesError, "give what is allowed")
    return prepare_training(request, resolved, source)


def list_given(call: Callable[..., object], arguments: Mapping[str, object]) -> list[str]:
    """The names of a call's arguments that are not as its signature has them."""
    usual = {name: one.default for name, one in signature(call).parameters.items()}
    return [
        name
        for name, value in usual.items()
        if type(arguments[name]) is not type(value) or arguments[name] != value
    ]


def refuse_beside_resume(given: Sequence[str]) -> None:
    """Refuse arguments that a run which goes on cannot follow: it is as it was begun. They are
    named as whoever gives them knows them, arguments or options.
    """
    named = [name for name in given if name.strip("-") not in MAY_STAND_BESIDE_RESUME]
    if named:
        raise RunError(
            f"a run that is resumed goes on as it was begun: leave out {', '.join(named)}, or "
            "start a new run"
        )


def prepare_resumed(run: Path, device: str | None = None) -> PreparedTraining:
    """A run that goes on, as it was asked for; only the device may be another."""
    request, resolved = read_request(run)
    if device:
        request = replace(request, device=device)
    source = source_of_run(request, run, resolved.settings)
    return prepare_training(request, resolved, source)


def run_training(
    prepared: PreparedTraining, run: Path, on_rows: OnRows, quiet: bool = False
) -> TrainingResult:
    """Train all lanes to their end, from their checkpoints if there are any, and judge them.

    Whatever interrupts it, the policies so far are saved, and the exception says how to go on.
    """
    try:
        train_lanes(prepared.made.training, run, prepared.chosen.slots, on_rows)
    except (KeyboardInterrupt, RunError) as stopped:
        if not is_held(run):  # by another process, which is why it was refused
            save_bundles(prepared, run)
        stopped.add_note(f"go on with: flatout.train(resume={str(run)!r})")
        raise
    saved = save_bundles(prepared, run)
    agents = {
        agent.name: judge_agent(agent, prepared, run, quiet) for agent in prepared.made.agents
    }
    result = TrainingResult(run, agents, saved.folders, saved.refusals)
    write_json(run / "report.json", result.facts())
    return result


def judge_agent(agent: Agent, prepared: PreparedTraining, run: Path, quiet: bool) -> AgentResult:
    """The best policies of one market on its held-out bars, beside the baselines."""
    made = prepared.made
    names = [lane.name for lane in made.training.lanes if made.agent_of[lane.name] is agent]
    folders = {name: run / file_name(name) / "best" for name in names}
    policies = {name: Bundle.load(path) for name, path in folders.items() if path.exists()}
    with progress_bar(quiet) as bar:
        task = bar.add_task(
            f"judging {agent.name}", total=agent.market.panel.n_bars - agent.cut - 1
        )
        found = judge_policies(agent.market, policies, agent.cut, lambda _: bar.advance(task))
    return AgentResult(
        name=agent.name,
        symbols=found.symbols,
        first=found.first,
        last=found.last,
        bars=found.bars,
        policies=found.policies,
        metrics=found.metrics,
        assumptions=describe_market(prepared.resolved.settings.market),
    )


class SavedBundles(NamedTuple):
    """The policies that a run has saved."""

    folders: dict[str, tuple[str, ...]]  # by lane, within the run's
    refusals: tuple[str, ...]  # what could not be saved, in sentences


def save_bundles(prepared: PreparedTraining, run: Path) -> SavedBundles:
    """Save the best and the last policy of every lane that has a checkpoint."""
    made = prepared.made
    folders: dict[str, tuple[str, ...]] = {lane.name: () for lane in made.training.lanes}
    refused = []
    for result in finished_lanes(made.training, run, prepared.request.workers or 1):
        for which, network, updates in (
            ("best", result.best, result.best_updates),
            ("last", result.last, result.updates),
        ):
            score = result.best_score if updates else None
            notes = describe_lane(made, result.lane.name, result.lane.seed, updates, score)
            bundle = partial(
                Bundle,
                network=network,
                activation=made.training.program.activation,
                distribution=made.training.program.distribution,
                recipe=made.agent_of[result.lane.name].market.fitted,
                settings=prepared.resolved.settings.market,
                kind=made.training.program.network,
                notes=notes,
            )
            place = f"{file_name(result.lane.name)}/{which}"
            try:
                bundle().save(run / place)
                folders[result.lane.name] += (place,)
            except BundleError as error:  # one agent that diverged must not cost the others
                refused.append(f"{result.lane.name}/{which} is not saved: {error}")
    return SavedBundles(folders, tuple(refused))


def describe_lane(
    made: MarketTraining, name: str, seed: int, updates: int, score: float | None
) -> dict[str, Any]:
    """What a saved policy says of its own training."""
    return {
        "lane": name,
        "seed": seed,
        "updates": updates,
        "timesteps": updates * made.training.program.rollout,
        "best_held_out_reward": score,
        "versions": versions(),
    }
