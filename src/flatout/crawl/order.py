"""What a crawl is asked to do, and the folder it is done in: written down once, so that a crawl can be gone on with.

It knows neither how pages are had (`live.py`, `archive.py`) nor how links are chosen.
"""

import hashlib
import json
import platform
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flatout.crawl.addresses import Lab
from flatout.crawl.fetching import Answer, Fetcher
from flatout.crawl.page import Page
from flatout.crawl.relevance import Judged, Relevance, parse_relevance
from flatout.crawl.scope import Scope, canonical
from flatout.crawl.session import CrawlTask
from flatout.errors import RunError, SettingsError
from flatout.run_directory import installed, runs_folder, write_bytes, write_json

RUN, ARCHIVE, POLICY = "run.json", "archive.sqlite", "policy.safetensors"
LEARNED = "policy"  # the name of a chooser that is a policy from a file
MAY_CHANGE = ("requests",)  # between two starts of one crawl


@dataclass(frozen=True)
class CrawlOrder:
    """One crawl: where, for what, how, and with how many requests."""

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
            raise SettingsError(f"{self.seed_url!r} is no URL to begin at; give one such as https://docs.example.org/")
        if self.requests < 2:
            raise SettingsError(f"{self.requests} requests leave none after the seed page; give 2 or more")
        if not 0 < self.threshold <= 1:
            raise SettingsError(f"a threshold of {self.threshold}: give one above 0 and at most 1")
        self.scope()
        self.doors()

    @property
    def is_live(self) -> bool:
        """Whether requests are sent."""
        return not self.archive

    def rule(self) -> Relevance:
        """What a page is worth."""
        if not self.relevance:
            return Judged(nothing, self.topic)
        return parse_relevance({**self.relevance, **({"topic": self.topic} if self.topic else {})})

    def scope(self) -> Scope | None:
        """The allow-list; None where a recording without one is crawled."""
        return Scope.parse(self.allow) if self.allow or self.is_live else None

    def doors(self) -> Lab:
        """The laboratory."""
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


def begin(folder: Path, order: CrawlOrder) -> bool:
    """Write the order into its folder; whether the folder held it already, so that the crawl goes on."""
    runs_folder(folder)
    files = fingerprints(order)
    if (folder / RUN).exists():
        check_same(folder, order, files)
        return True
    if order.policy:
        write_bytes(folder / POLICY, Path(order.policy).read_bytes())
    write_json(
        folder / RUN,
        {
            "order": asdict(order),
            "files": files,
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "flatout": installed("flatout"),
            "python": platform.python_version(),
        },
    )
    return False


def read_run(folder: Path) -> dict[str, Any]:
    """What was written down when a crawl began."""
    try:
        found = json.loads((folder / RUN).read_text(encoding="utf-8"))
        found["order"]["seed_url"]
    except FileNotFoundError:
        raise RunError(f"{folder} holds no crawl: {RUN} is not there; give the folder of `flatout crawl run`") from None
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{folder / RUN} cannot be read: {error}; begin in another folder") from None
    return found


def read_order(folder: Path, **changed: Any) -> CrawlOrder:
    """The order of a crawl that was begun, with these changes; None is none."""
    found = read_run(folder)["order"]
    known = {each.name for each in fields(CrawlOrder)}
    if set(found) - known:
        raise RunError(f"{folder / RUN} was written by another version: {', '.join(sorted(set(found) - known))}")
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}
    order = CrawlOrder(**{**given, **{name: value for name, value in changed.items() if value is not None}})
    if order.policy:  # its copy: the original may have gone
        return CrawlOrder(**{**vars(order), "policy": str(folder / POLICY)})
    return order


def check_same(folder: Path, order: CrawlOrder, files: Mapping[str, str]) -> None:
    """Refuse to go on with another order than the crawl was begun with."""
    before = read_run(folder)
    given = json.loads(json.dumps(asdict(order)))
    for name, value in given.items():
        if name not in (*MAY_CHANGE, "policy") and before["order"].get(name) != value:
            raise RunError(
                f"{folder} holds a crawl with {name}={before['order'].get(name)!r}, and {value!r} is given now: give "
                "the same to go on with it, or another --out"
            )
    if sorted(before["files"].values()) != sorted(files.values()):
        raise RunError(f"{folder} holds a crawl with other files (policy or examples): give the same, or another --out")


def fingerprints(order: CrawlOrder) -> dict[str, str]:
    """Digests of the files that decide what the crawl does."""
    examples = [str(path) for kind in ("examples", "background") for path in order.relevance.get(kind, ())]
    found = {}
    for path in [*examples, *([order.policy] if order.policy else [])]:
        if not Path(path).is_file():
            raise SettingsError(f"there is no file {path}; check the path")
        found[path] = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    return found
