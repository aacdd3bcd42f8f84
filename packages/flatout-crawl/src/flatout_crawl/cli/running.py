"""What `flatout crawl doctor`, `record`, `run` and `report` do."""

import asyncio
import sys
import webbrowser
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from flatout.cli.options import print_json
from flatout.errors import RunError, SettingsError
from flatout.runs import check_links, runs_folder
from flatout.terminal import plain, progress_bar
from flatout_crawl.choosers.baselines import standard
from flatout_crawl.choosers.session import SiteUnreachable
from flatout_crawl.net.fetching import Answer
from flatout_crawl.net.ledger import printable
from flatout_crawl.runs.archive import Archive
from flatout_crawl.runs.archive_task import archive_at, beside
from flatout_crawl.runs.deployment import Deployment, Status, maker_of, source_of
from flatout_crawl.runs.health import (
    HealthFinding,
    describe_refusal,
    examine,
    require,
    without_requests,
)
from flatout_crawl.runs.order import ARCHIVE, LEARNED, CrawlOrder, begin, read_order
from flatout_crawl.runs.report import headline, write_report
from flatout_crawl.runs.report_facts import gather
from flatout_crawl.sites.documentation import Tree, pydoc_site, record_tree

REQUESTS = 100  # where nothing else is asked for
FILE_PAGES = 1_000  # recorded from a folder where nothing else is asked for


def rule_from(
    keywords: Sequence[str] | None,
    examples: Sequence[str] | None,
    css: str | None,
    regex: str | None,
    needed: bool = False,
) -> dict[str, Any]:
    """What is looked for, as `relevance.parse_relevance` takes it."""
    split = [part.strip() for given in keywords or () for part in given.split(",") if part.strip()]
    given = {"keywords": split, "examples": list(examples or ()), "css": css, "regex": regex}
    found = {kind: value for kind, value in given.items() if value}
    if needed and not found:
        raise SettingsError(
            "nothing to look for was given: give --keywords WORDS, --examples FILES, --css "
            "SELECTOR or --regex PATTERN"
        )
    return found


def order_from(
    seed_url: str | None,
    allow: Sequence[str] | None,
    lab: Sequence[str] | None,
    archive: Path | None,
    rule: Mapping[str, Any],
    *,
    policy: Path | None = None,
    chooser: str | None = None,
    requests: int | None = None,
    **more: Any,
) -> CrawlOrder:
    """The order that a command line asks for; refuses what cannot be meant."""
    if not seed_url:
        raise SettingsError(
            "no page to begin at was given: give --seed-url URL, or --resume FOLDER to go on "
            "with a crawl"
        )
    if policy and chooser:
        raise SettingsError(
            f"both --policy {policy} and --chooser {chooser} were given: give one of them"
        )
    if chooser and chooser not in standard():
        raise SettingsError(f"there is no chooser {chooser!r}: take one of {', '.join(standard())}")
    if policy is not None and policy.is_dir():
        policy = policy / "policy.safetensors"
    order = CrawlOrder(
        seed_url=seed_url,
        relevance=rule,
        allow=tuple(allow or ()),
        lab=tuple(lab or ()),
        chooser=LEARNED if policy else chooser or "best-first",
        policy=str(policy.resolve()) if policy else "",
        requests=requests if requests is not None else REQUESTS,
        archive=str(archive_at(archive).resolve()) if archive else "",
        **more,
    )
    if order.archive:
        Archive(Path(order.archive), read_only=True).close()  # a file that is none is refused now
    order.rule()  # and so are a bad pattern
    maker_of(order)  # and a policy that cannot act here
    return order


def doctor(order: CrawlOrder, folder: Path | None, as_json: bool) -> None:
    """Tell every check as it is made; exit code 1 if a crawl would be refused."""
    console = Console()
    findings = asyncio.run(
        examine(
            order, folder, (lambda _: None) if as_json else (lambda found: show(found, console))
        )
    )
    why = describe_refusal(findings)
    if as_json:
        print_json(
            {"ok": not why, "refused": why, "findings": [found._asdict() for found in findings]}
        )
    else:
        console.print(
            "a crawl would be refused" if why else "a crawl may begin",
            style="bold red" if why else "green",
        )
    if why:
        raise typer.Exit(1)


def show(found: HealthFinding, console: Console) -> None:
    """One check on a terminal."""
    sign = "[green]✓[/]" if found.ok else "[red]✗[/]"
    console.print(
        f"{sign} {found.name}: {plain(printable(found.sentence))}", highlight=False, soft_wrap=True
    )


def fresh_folder(name: str) -> Path:
    """Where a run goes if no folder is given."""
    return Path("runs") / f"crawl-{name}-{datetime.now(UTC).strftime('%Y%m%dT%H%M%S')}"


def crawl(
    verb: str,
    order: CrawlOrder | None,
    out: Path | None,
    resume: Path | None,
    requests: int | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """A crawl with a folder of its own, from its beginning or from where it was."""
    if order is None:
        assert resume is not None
        order = read_order(resume, requests=requests)
    folder = resume or out or fresh_folder(verb)
    findings = without_requests(order, folder)
    if dry_run:
        tell_plan(order, folder, findings, as_json)
        return
    require(findings)
    goes_on = begin(folder, order)
    console = Console(stderr=True)
    if not as_json:
        console.print(
            f"{'going on in' if goes_on else 'into'} {plain(folder)}/",
            highlight=False,
            soft_wrap=True,
        )
    outcome, interrupted = run_deployment(order, folder, CrawlWatch(console, order, as_json))
    if as_json:
        print_json({**outcome, "folder": str(folder), "interrupted": interrupted})
    else:
        tell_outcome(verb, order, folder, outcome)
    if interrupted:
        again = f"interrupted; go on with: flatout crawl {verb} --resume {folder}"
        console.print(plain(again), highlight=False, soft_wrap=True)
        sys.exit(130)


def run_deployment(
    order: CrawlOrder, folder: Path, watch: "CrawlWatch"
) -> tuple[dict[str, Any], bool]:
    """Crawl, and write down what came of it, also if it was interrupted."""
    interrupted = False
    with source_of(order, folder) as source:
        deployment = Deployment(order, folder, source, watch.on_status)
        try:
            with watch:
                asyncio.run(deployment.run())
        except KeyboardInterrupt:
            interrupted = True
        except SiteUnreachable:
            deployment.close()
            raise
        bands = {}
        if not order.is_live and not interrupted:
            task = order.task(source.fetcher)
            bands = {
                name: band._asdict()
                for name, band in beside(task, order.requests, order.threshold).items()
            }
        outcome = deployment.finish(bands)
        deployment.close()
    return outcome, interrupted


class CrawlWatch:
    """The bar on a terminal; elsewhere a line per target."""

    def __init__(self, console: Console, order: CrawlOrder, quiet: bool) -> None:
        self.console, self.order, self.quiet = console, order, quiet
        columns = (
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
            TextColumn("requests"),
            TimeElapsedColumn(), TimeRemainingColumn(),
        )  # fmt: skip
        self.bar = Progress(
            *columns, console=console, transient=True, disable=quiet or not console.is_terminal
        )
        self.task = self.bar.add_task("seed page", total=order.requests)
        self.retraced = 0

    def __enter__(self) -> "CrawlWatch":
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def on_status(self, status: Status) -> None:
        """Show how far the crawl is, and the target that it found."""
        if status.retraced:
            self.retraced += 1
        elif self.retraced:
            if not self.quiet:
                self.console.print(
                    f"{self.retraced} steps retraced without a request", highlight=False
                )
            self.retraced = 0
        text = f"{status.found} found, {status.open_links} links open"
        self.bar.update(self.task, description=text, completed=status.requests, total=status.total)
        if status.target and not status.retraced and not self.quiet:
            found = status.target
            line = f"{found.request:>6}  {found.score:.2f}  {found.url}  {found.title}"
            self.console.print(plain(printable(line)), highlight=False, soft_wrap=True)


def tell_plan(
    order: CrawlOrder, folder: Path, findings: list[HealthFinding], as_json: bool
) -> None:
    """What would be done; exit code 1 if it would be refused."""
    why = describe_refusal(findings)
    if as_json:
        facts = [found._asdict() for found in findings]
        print_json(
            {"order": asdict(order), "folder": str(folder), "refused": why, "findings": facts}
        )
    else:
        console = Console()
        for found in findings:
            show(found, console)
        way = "the recording " + order.archive if order.archive else "the network"
        text = (
            f"{order.seed_url} on {way} by {order.policy or order.chooser}, {order.requests} "
            f"requests at most"
        )
        text = (
            f"{'would be refused' if why else 'would crawl'}: {text}, into {folder}/; nothing "
            f"was asked for"
        )
        console.print(plain(text), highlight=False, soft_wrap=True)
    if why:
        raise typer.Exit(1)


def tell_outcome(verb: str, order: CrawlOrder, folder: Path, outcome: Mapping[str, Any]) -> None:
    """What was found, in the first line; then where it is and what may be done next."""
    console = Console()
    _, words, sentence = headline(gather(folder))
    console.print(
        f"[bold]{plain(words.capitalize())}[/]: {plain(sentence)}", highlight=False, soft_wrap=True
    )
    if outcome["failures"]:
        kinds = ", ".join(f"{count} x {kind}" for kind, count in outcome["failures"].items())
        console.print(f"could not be had: {plain(kinds)}", highlight=False, soft_wrap=True)
    if outcome["not_searched"]:
        text = (
            f"{outcome['not_searched']} pages count as not relevant: the search for the "
            f"pattern took too long in them"
        )
        console.print(text, highlight=False, soft_wrap=True)
    text = f"{folder}/: targets.jsonl, graph.gexf, report.html" + (
        f", {ARCHIVE}, audit.jsonl" if order.is_live else ""
    )
    console.print(plain(text), highlight=False, soft_wrap=True)
    if verb == "record":
        again = (
            f"next: flatout crawl run --archive {folder} --seed-url {order.seed_url} "
            f"--keywords WORDS"
        )
        console.print(plain(again), highlight=False, soft_wrap=True)


class Counted:
    """An archive that tells of every page and keeps what it has."""

    def __init__(self, archive: Archive, bar: Progress, total: int) -> None:
        self.archive, self.bar = archive, bar
        self.task = bar.add_task("recording", total=total)

    def put(self, answer: Answer, asked_url: str) -> None:
        """Keep an answer, unless the archive has one."""
        if self.archive.get(asked_url) is None:
            self.archive.put(answer, asked_url)
        self.bar.advance(self.task)


def record_files(source: Path | None, out: Path | None, limit: int | None, as_json: bool) -> None:
    """Files, or pydoc's pages if none are given, into an archive; begun again it goes on."""
    folder = runs_folder(out or fresh_folder("record"))
    check_links(folder)
    most = limit if limit is not None else FILE_PAGES
    tree = Tree(source) if source else pydoc_site(folder / "pydoc", most)
    with Archive(folder / ARCHIVE) as archive, progress_bar(as_json) as bar:
        count = record_tree(tree, Counted(archive, bar, most), most)
    facts = {"archive": str(folder / ARCHIVE), "pages": count, "seed_url": tree.seed_url}
    if as_json:
        print_json(facts)
        return
    console = Console()
    console.print(
        plain(f"{count} pages are in {folder / ARCHIVE}; the first is {tree.seed_url}"),
        highlight=False,
        soft_wrap=True,
    )
    again = (
        f"next: flatout crawl run --archive {folder} --seed-url {tree.seed_url} --keywords WORDS"
    )
    console.print(plain(again), highlight=False, soft_wrap=True)


def report(folder: Path, show_page: bool, as_json: bool) -> None:
    """Write a folder's report.html again, and print its first sentence."""
    page = write_report(folder)
    _, words, sentence = headline(gather(folder))
    if as_json:
        print_json({"headline": words, "sentence": sentence, "page": str(page)})
    else:
        console = Console()
        console.print(
            f"[bold]{plain(words.capitalize())}[/]: {plain(sentence)}",
            highlight=False,
            soft_wrap=True,
        )
        console.print(plain(f"report: {page}"), highlight=False, soft_wrap=True)
    if show_page and not webbrowser.open(page.resolve().as_uri()):
        raise RunError(f"no browser could be started: open {page.resolve()} yourself")
