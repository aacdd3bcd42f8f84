"""What a crawl is asked to do, and the folder it is done in: written down once, so that a crawl can
be gone on with.

It knows neither how pages are had (`live.py`, `archive.py`) nor how links are chosen.
"""

import hashlib
import json
import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict

from flatout.errors import RunError, SettingsError
from flatout.foreign import read_file, read_json, shorten_repr
from flatout.runs import check_links, installed_version, runs_folder, write_bytes, write_json
from flatout_crawl.choosers.session import CrawlTask
from flatout_crawl.net.addresses import Lab
from flatout_crawl.net.fetching import Answer, Fetcher
from flatout_crawl.net.scope import Scope, canonical
from flatout_crawl.reading.page import Page
from flatout_crawl.reading.relevance import Judged, Relevance, parse_relevance, several

RUN, ARCHIVE, POLICY = "run.json", "archive.sqlite", "policy.safetensors"
RUN_BYTES = 1 << 20  # of RUN
POLICY_BYTES = 256 << 20
MOST_REQUESTS = 10_000_000  # of one crawl
ELSEWHERE = "begin in another folder"
LEARNED = "policy"  # the name of a chooser that is a policy from a file
MAY_CHANGE = ("requests",)  # between two starts of one crawl


@dataclass(frozen=True)
class CrawlOrder:
    """One crawl: where, for what, how, and with how many requests."""

    # a key that is not known here may change what is done
    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    seed_url: str
    relevance: Mapping[str, Any] = field(
        default_factory=dict
    )  # as `parse_relevance` takes it; {}: nothing is looked for
    allow: tuple[str, ...] = ()  # the allow-list
    lab: tuple[str, ...] = ()  # loopback addresses with ports that may be asked
    chooser: str = "best-first"  # a baseline's name, or LEARNED
    policy: str = ""  # the file of a learned one
    requests: int = 100  # that may be sent, robots.txt included
    topic: str = ""  # words to compare links with; "": those of the relevance
    threshold: float = 0.5  # relevance from which on a page is a target
    seed: int = 0
    archive: str = ""  # a recording to crawl instead of the network
    user_agent: str = ""
    delay_seconds: float | None = None  # between two requests to a host; None: as is polite

    def __post_init__(self) -> None:
        if canonical(self.seed_url) is None:
            raise SettingsError(
                f"{shorten_repr(self.seed_url)} is no URL to begin at; give one such as "
                f"https://docs.example.org/"
            )
        if self.requests < 2:
            raise SettingsError(
                f"{self.requests} requests leave none after the seed page; give 2 or more"
            )
        if self.requests > MOST_REQUESTS:
            raise SettingsError(
                f"{self.requests} requests are too many for one crawl; give {MOST_REQUESTS} at most"
            )
        if not 0 <= self.seed < 1 << 63:
            raise SettingsError(f"a seed of {self.seed}: give one from 0 to {(1 << 63) - 1}")
        if not 0 < self.threshold <= 1:
            raise SettingsError(f"a threshold of {self.threshold}: give one above 0 and at most 1")
        self.scope()
        self.doors()

    @property
    def is_live(self) -> bool:
        """Whether requests are sent."""
        return not self.archive

    def rule(self) -> Relevance:
        """The rule that says what a page is worth."""
        if not self.relevance:
            return Judged(nothing, self.topic)
        return parse_relevance({**self.relevance, **({"topic": self.topic} if self.topic else {})})

    def scope(self) -> Scope | None:
        """The allow-list; None where a recording without one is crawled."""
        return Scope.parse(self.allow) if self.allow or self.is_live else None

    def doors(self) -> Lab:
        """The servers on loopback that may be asked."""
        return Lab.parse(self.lab)

    def task(self, fetcher: Fetcher, read: Callable[[Answer], Page] | None = None) -> CrawlTask:
        """The crawl as a task; what is looked for is not known beforehand."""
        scope = self.scope()
        return CrawlTask(
            fetcher,
            self.seed_url,
            self.rule(),
            topic=self.topic or None,
            scope=scope.allows if scope else None,
            budget=self.requests,
            read=read,
        )


def nothing(page: Page, body: bytes) -> float:
    """The relevance of every page where nothing is looked for."""
    return 0.0


@dataclass(frozen=True)
class BegunRun:
    """What is written down when a crawl begins."""

    order: CrawlOrder
    files: dict[str, str]  # digests by path
    started: str = ""
    flatout: str | None = None
    python: str = ""


def begin(folder: Path, order: CrawlOrder) -> bool:
    """Write the order into its folder; whether the folder held it already, so that the crawl goes
    on.
    """
    runs_folder(folder)
    check_links(folder)
    files = fingerprints(order)
    if (folder / RUN).exists():
        check_same(folder, order, files)
        return True
    if order.policy:
        write_bytes(
            folder / POLICY,
            read_file(Path(order.policy), POLICY_BYTES, SettingsError, "give a policy's file"),
        )
    started = datetime.now(UTC).isoformat(timespec="seconds")
    begun = BegunRun(
        order=order,
        files=files,
        started=started,
        flatout=installed_version("flatout"),
        python=platform.python_version(),
    )
    write_json(folder / RUN, asdict(begun))
    return False


def read_run(folder: Path) -> BegunRun:
    """What was written down when a crawl began."""
    if not os.path.lexists(folder / RUN):
        raise RunError(
            f"{folder} holds no crawl: {RUN} is not there; give the folder of `flatout crawl run`"
        )
    return read_json(folder / RUN, BegunRun, cure=ELSEWHERE, limit=RUN_BYTES)


def read_order(folder: Path, **changed: Any) -> CrawlOrder:
    """The order of a crawl that was begun, with these changes; None is none."""
    order = replace(
        read_run(folder).order,
        **{name: value for name, value in changed.items() if value is not None},
    )
    # the original may have gone
    return replace(order, policy=str(folder / POLICY)) if order.policy else order


def check_same(folder: Path, order: CrawlOrder, files: Mapping[str, str]) -> None:
    """Refuse to go on with another order than the crawl was begun with."""
    before = read_run(folder)
    begun, given = plain(before.order), plain(order)
    for name, value in given.items():
        if name not in (*MAY_CHANGE, "policy") and begun[name] != value:
            raise RunError(
                f"{folder} holds a crawl with {name}={shorten_repr(begun[name])}, and "
                f"{shorten_repr(value)} is given now: give the same to go on with it, or another "
                f"--out"
            )
    if sorted(before.files.values()) != sorted(files.values()):
        raise RunError(
            f"{folder} holds a crawl with other files (policy or examples): give the "
            f"same, or another --out"
        )


def plain(order: CrawlOrder) -> dict[str, Any]:
    """An order as JSON has it."""
    return json.loads(json.dumps(asdict(order)))


def fingerprints(order: CrawlOrder) -> dict[str, str]:
    """Digests of the files that decide what the crawl does."""
    examples = [
        path
        for kind in ("examples", "background")
        for path in several(order.relevance.get(kind, ()))
    ]
    return {
        path: hashlib.sha256(
            read_file(Path(path), POLICY_BYTES, SettingsError, "check the path")
        ).hexdigest()
        for path in [*examples, *([order.policy] if order.policy else [])]
    }
