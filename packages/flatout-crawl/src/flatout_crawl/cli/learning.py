"""What `flatout crawl train` does, and where training and trials take place."""

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from flatout.cli.options import print_json
from flatout.errors import RunError, SettingsError
from flatout.foreign import read_json, shorten_repr
from flatout.runs import installed_version, runs_folder, write_json
from flatout.terminal import plain
from flatout_crawl.choosers.session import CrawlTask
from flatout_crawl.choosers.site_task import Judge, site_task
from flatout_crawl.choosers.training import POLICY, CrawlTraining, CrawlTrainingProgress
from flatout_crawl.choosers.training import train as train_policy
from flatout_crawl.cli.running import fresh_folder
from flatout_crawl.reading.relevance import parse_relevance
from flatout_crawl.runs.archive import Archive
from flatout_crawl.runs.archive_task import archive_at, read_archive
from flatout_crawl.sites.latency import parse_latency
from flatout_crawl.sites.sim import SimFetcher
from flatout_crawl.sites.site import SiteSettings, generate

SCHOOL = "school.json"
SCHOOL_BYTES = 1 << 20  # of SCHOOL
ELSEWHERE = "begin in another folder"
JUDGES = ("truth", "keywords")
MOST_PAGES = 10_000_000  # of all made-up sites: they are held in memory
MOST_STEPS, MOST_ENVS = 10**12, 10_000


@dataclass(frozen=True)
class Places:
    """Made-up sites and recordings."""

    sites: int
    pages: int
    site_seed: int
    judge: str
    archives: tuple[str, ...]
    seed_urls: tuple[str, ...]
    relevance: Mapping[str, Any]

    def __post_init__(self) -> None:
        if self.judge not in JUDGES:
            raise SettingsError(
                f"there is no judge {shorten_repr(self.judge)}: take one of {', '.join(JUDGES)}"
            )
        if not self.sites and not self.archives:
            raise SettingsError("no sites were given: give --sites NUMBER or --archive FILE")
        if (
            self.sites < 0
            or self.sites * self.pages > MOST_PAGES
            or not 0 <= self.site_seed < 1 << 62
        ):
            raise SettingsError(
                f"{self.sites} sites of {self.pages} pages from seed {self.site_seed} on: give "
                f"{MOST_PAGES:,} pages in all at most, and a seed from 0 on"
            )
        if len(self.archives) != len(self.seed_urls):
            raise SettingsError(
                f"{len(self.archives)} archives and {len(self.seed_urls)} seed URLs were given: "
                "give one --seed-url for each --archive"
            )
        if self.archives and not self.relevance:
            raise SettingsError(
                "what is looked for in the archives was not given: give --keywords, "
                "--examples, --css or --regex"
            )

    def settings(self) -> Iterator[SiteSettings]:
        """The settings of each made-up site."""
        return (SiteSettings(seed=self.site_seed + k, pages=self.pages) for k in range(self.sites))


@dataclass(frozen=True)
class School(Places):
    """What is learned on, and how; written down so that it can be gone on with."""

    latency: str = "none"
    steps: int = 200_000
    envs: int = 32
    budget: str = "60-1200"
    learning_rate: float = 1e-3
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (
            0 < self.steps <= MOST_STEPS and 0 < self.envs <= MOST_ENVS and 0 <= self.seed < 1 << 62
        ):
            raise SettingsError(
                f"steps={self.steps}, envs={self.envs}, seed={self.seed}: give up to "
                f"{MOST_STEPS:,} steps, up to {MOST_ENVS:,} crawls at a time, and a seed from 0 on"
            )
        if not 0 < self.learning_rate <= 1:
            raise SettingsError(
                f"a learning rate of {self.learning_rate}: give one above 0 and at most 1"
            )
        budget_of(self.budget)

    def training(self) -> CrawlTraining:
        """As settings of the trainer."""
        return CrawlTraining(
            steps=self.steps,
            envs=self.envs,
            budget=budget_of(self.budget),
            learning_rate=self.learning_rate,
            seed=self.seed,
        )

    def tasks(self) -> list[CrawlTask]:
        """Everything it learns on; archives stay open until the process ends."""
        latency, judge = parse_latency(self.latency), cast(Judge, self.judge)
        sites = [generate(settings) for settings in self.settings()]
        tasks = [
            site_task(site, SimFetcher(site, latency, seed=k), judge)
            for k, site in enumerate(sites)
        ]
        rule = parse_relevance(self.relevance) if self.archives else None
        for path, url in zip(self.archives, self.seed_urls, strict=True):
            assert rule is not None
            tasks.append(
                read_archive(Archive(archive_at(Path(path)), read_only=True), url, rule).task
            )
        return tasks


def budget_of(text: str) -> tuple[int, int]:
    """The smallest and the largest budget that "100" or "60-1200" means."""
    low, _, high = text.partition("-")
    plain_digits = re.fullmatch(r"[0-9]{1,9}(-[0-9]{1,9})?", text)
    if not plain_digits or not 2 <= int(low) <= int(high or low):
        raise SettingsError(
            f"a budget of {shorten_repr(text)}: write a number of requests, 2 or more, or a range "
            f"such as 60-1200"
        )
    return int(low), int(high or low)


def train(
    school: School, steps: int | None, out: Path | None, resume: Path | None, as_json: bool
) -> None:
    """Learn, or go on learning."""
    folder = runs_folder(resume or out or fresh_folder("train"))
    school = read_school(folder, steps) if resume else keep_school(folder, school)
    settings, console = school.training(), Console(stderr=True)
    if not as_json:
        text = f"{school.sites} made-up sites of about {school.pages} pages" if school.sites else ""
        text += (
            f"{' and ' if text and school.archives else ''}{len(school.archives)} recordings"
            if school.archives
            else ""
        )
        text = plain(f"learning on {text}, {school.envs} crawls at a time; {folder}/")
        console.print(text, highlight=False, soft_wrap=True)
    watch = TrainingWatch(console, settings, as_json)
    try:
        with watch:
            policy = train_policy(school.tasks(), settings, folder, watch.on_progress)
    except KeyboardInterrupt:
        console.print(
            plain(f"interrupted; go on with: flatout crawl train --resume {folder}"),
            highlight=False,
            soft_wrap=True,
        )
        sys.exit(130)
    path, last = folder / POLICY, watch.last
    replace(policy, notes={**policy.notes, "school": school_as_json(school)}).save(path)
    facts = {
        "policy": str(path),
        "folder": str(folder),
        "progress": last._asdict() if last else None,
    }
    if as_json:
        print_json(facts)
        return
    console = Console()
    if last:
        console.print(
            f"{last.steps:,} steps, {last.steps_per_s:,.0f} a second; of the last crawls' targets "
            f"{last.recall:.0%} were found; data {last.lag:.1f} updates old, the learner idle "
            f"{last.learner_idle:.0%} of the time",
            highlight=False, soft_wrap=True,
        )  # fmt: skip
    console.print(plain(f"the policy: {path}"), highlight=False, soft_wrap=True)
    console.print(plain(f"next: flatout crawl eval {path}"), highlight=False, soft_wrap=True)


def keep_school(folder: Path, school: School) -> School:
    """Write down what is learned on; refuses a folder that was begun with something else."""
    if (folder / SCHOOL).exists():
        before, given = school_as_json(read_school(folder)), school_as_json(school)
        other = [name for name in given if name != "steps" and before.get(name) != given[name]]
        if other:
            raise RunError(
                f"{folder} was begun with {other[0]}={shorten_repr(before.get(other[0]))}, and "
                f"{shorten_repr(given[other[0]])} is given now: give the same, or another --out"
            )
    else:
        write_json(
            folder / SCHOOL, {**school_as_json(school), "flatout": installed_version("flatout")}
        )
    return school


def read_school(folder: Path, steps: int | None = None) -> School:
    """What a folder was begun with; the steps may grow."""
    if not os.path.lexists(folder / SCHOOL):
        raise RunError(
            f"{folder} holds no training of crawls: {SCHOOL} is not there; give its folder"
        )
    school = read_json(folder / SCHOOL, School, cure=ELSEWHERE, limit=SCHOOL_BYTES)
    return school if steps is None else replace(school, steps=steps)


def school_as_json(school: School) -> dict[str, Any]:
    """A school as JSON has it: lists instead of tuples."""
    return dict(json.loads(json.dumps(asdict(school))))


class TrainingWatch:
    """The bar on a terminal; elsewhere a line per twentieth."""

    def __init__(self, console: Console, settings: CrawlTraining, quiet: bool) -> None:
        self.console, self.quiet, self.last, self.lines = (
            console,
            quiet,
            cast(CrawlTrainingProgress | None, None),
            0,
        )
        columns = (
            TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:.0f} %"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )  # fmt: skip
        self.bar = Bar(
            *columns, console=console, transient=True, disable=quiet or not console.is_terminal
        )
        self.task = self.bar.add_task("making sites", total=settings.steps)

    def __enter__(self) -> "TrainingWatch":
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def on_progress(self, now: CrawlTrainingProgress) -> None:
        """Show how far the training is."""
        self.last = now
        text = (
            f"{now.steps_per_s:,.0f} steps/s, return {now.mean_return:+.2f}, recall "
            f"{now.recall:.0%}"
        )
        self.bar.update(self.task, description=text, completed=now.steps)
        if (
            not self.console.is_terminal
            and not self.quiet
            and 20 * now.steps // now.total > self.lines
        ):
            self.lines = 20 * now.steps // now.total
            self.console.print(
                f"{min(1.0, now.steps / now.total):4.0%} {text}, lag {now.lag:.1f}", highlight=False
            )
