"""What `flatout crawl eval` does: a policy beside all baselines, the verdict first."""

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from rich.console import Console
from rich.table import Table

from flatout.cli.options import print_json
from flatout.errors import BundleError, SettingsError
from flatout.foreign import parse_json
from flatout.runs import installed_version, runs_folder, write_json
from flatout.terminal import plain, progress_bar
from flatout_crawl.choosers.baselines import standard
from flatout_crawl.choosers.evaluate import policy_chooser
from flatout_crawl.choosers.policy import CrawlPolicy
from flatout_crawl.choosers.site_task import Judge
from flatout_crawl.cli.learning import SCHOOL, Places, School, read_school
from flatout_crawl.cli.running import fresh_folder
from flatout_crawl.reading.relevance import parse_relevance
from flatout_crawl.runs.archive import Archive
from flatout_crawl.runs.archive_task import archive_at, read_archive
from flatout_crawl.runs.contest import Field, contest, field_of_recording, field_of_site
from flatout_crawl.runs.order import POLICY
from flatout_crawl.runs.report import write_report
from flatout_crawl.runs.report_facts import EVALUATION
from flatout_crawl.sites.site import generate

DOES_NOT_BEAT = 3


@dataclass(frozen=True)
class Exam(Places):
    """What a policy is tried on."""

    policy: str = ""
    budget: int | None = None
    seeds: int = 1

    def fields(self) -> Iterator[Field]:
        """Made when they are needed: a site in memory is large."""
        for settings in self.settings():
            yield field_of_site(generate(settings), cast(Judge, self.judge))
        rule = parse_relevance(self.relevance) if self.archives else None
        for path, url in zip(self.archives, self.seed_urls, strict=True):
            assert rule is not None
            with Archive(archive_at(Path(path)), read_only=True) as archive:
                yield field_of_recording(read_archive(archive, url, rule))


def evaluate(exam: Exam, out: Path | None, gate: bool, as_json: bool) -> None:
    """Try a policy beside all baselines; the verdict comes first."""
    path = Path(exam.policy) / POLICY if Path(exam.policy).is_dir() else Path(exam.policy)
    policy = CrawlPolicy.load(path)
    refuse_taught(exam, policy, path)
    folder = runs_folder(out or fresh_folder("eval"))
    with progress_bar(as_json) as bar:
        total = (exam.sites + len(exam.archives)) * (len(standard()) + 2)
        task = bar.add_task("crawling", total=total)

        def on_crawl(site: str, chooser: str) -> None:
            bar.update(task, advance=1, description=plain(f"{site} by {chooser}"))

        found = contest(
            policy_chooser(policy.act, policy.model.candidates),
            fields=exam.fields(),
            seeds=range(exam.seeds),
            budget=exam.budget,
            on_crawl=on_crawl,
        )
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    evaluation = {
        "verdict": found.pop("verdict"),
        "policy": {"file": str(path), "sha256": digest, "notes": policy.notes},
        "settings": exam_as_json(exam),
        "assumptions": assumptions(exam, policy),
        **found,
        "flatout": installed_version("flatout"),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    write_json(folder / EVALUATION, evaluation)
    page = write_report(folder)
    if as_json:
        print_json(
            {
                **{
                    key: value for key, value in evaluation.items() if key not in ("curves", "runs")
                },
                "page": str(page),
            }
        )
    else:
        tell_evaluation(evaluation, page)
    if gate and not evaluation["verdict"]["beats"]:
        sys.exit(DOES_NOT_BEAT)


@dataclass(frozen=True)
class Taught:
    """What a policy's file says that it was taught on."""

    sites: int = 0
    pages: int = 0
    site_seed: int = 0
    archives: tuple[str, ...] = ()
    seed_urls: tuple[str, ...] = ()


def refuse_taught(exam: Exam, policy: CrawlPolicy, path: Path) -> None:
    """Refuse sites that the policy learned on: what it can do there says nothing."""
    noted = policy.notes.get("school")
    taught: Taught | School | None = None
    if noted is not None:
        taught = parse_json(
            json.dumps(noted),
            shape=Taught,
            where=f"{path}: notes: school",
            refuse=BundleError,
            cure="train it again",
        )
    elif (path.parent / SCHOOL).is_file():  # training has not come to its end
        taught = read_school(path.parent)
    if taught is None:
        return
    first, last = taught.site_seed, taught.site_seed + taught.sites - 1
    own = range(exam.site_seed, exam.site_seed + exam.sites)
    if exam.pages == taught.pages and own and first <= own[-1] and own[0] <= last:
        raise SettingsError(
            f"{path} learned on the sites with seeds {first} to {last}, not to be tried on "
            f"{own[0]} to {own[-1]}: give a --site-seed beyond them"
        )
    known = {
        (str(Path(name).resolve()), url)
        for name, url in zip(taught.archives, taught.seed_urls, strict=False)
    }
    same = [
        name
        for name, url in zip(exam.archives, exam.seed_urls, strict=True)
        if (str(Path(name).resolve()), url) in known
    ]
    if same:
        raise SettingsError(f"{path} learned on {same[0]}: try it on a recording that it never saw")


def exam_as_json(exam: Exam) -> dict[str, Any]:
    """An exam as JSON has it: lists instead of tuples."""
    return dict(json.loads(json.dumps(asdict(exam))))


def assumptions(exam: Exam, policy: CrawlPolicy) -> list[str]:
    """What the numbers rest on."""
    sentences = [
        (
            "Each chooser sees the same site and starts anew on it; baselines see all links, the "
            "policy its candidates."
        )
    ]
    if exam.sites:
        first, last = exam.site_seed, exam.site_seed + exam.sites - 1
        sentences.append(
            (
                f"Made-up sites with seeds {first} to {last}: their like is not proven to be the "
                f"like of real ones. "
            )
            + (
                "The truth judges pages."
                if exam.judge == "truth"
                else "Keywords, as a user writes them, judge pages."
            )
        )
    if exam.archives:
        sentences.append(
            "Of recorded sites only what was recorded exists; targets are the pages that the "
            "rule calls relevant."
        )
    sentences.append(
        "A crawl that never finds 90 % of the targets counts with its whole budget, which "
        "flatters it."
    )
    sentences.append(
        f"The policy learned from {policy.notes.get('steps', 'an unknown number of')} "
        f"requests; baselines from none."
    )
    return sentences


def tell_evaluation(evaluation: Mapping[str, Any], page: Path) -> None:
    """The verdict, then the table."""
    console = Console()
    console = console if console.is_terminal else Console(width=150)
    verdict = evaluation["verdict"]
    console.print(
        plain(verdict["sentence"]),
        style="bold green" if verdict["beats"] else "bold red",
        highlight=False,
        soft_wrap=True,
    )
    table = Table("", "requests to 90 %", "reached", "requests to 50 %", "mean recall", "wasted MB")
    for column in table.columns[1:]:
        column.justify = "right"
    for row in evaluation["choosers"]:
        of = row["metrics"]
        cells = [
            format_interval(of["requests_to_90"], 0),
            f"{row['reached_90']:.0%}",
            format_interval(of["requests_to_50"], 0),
        ]
        cells += [format_interval(of["auc"], 3), format_interval(of["wasted_mb"], 1)]
        table.add_row(row["chooser"], *cells, style="bold" if row["chooser"] == "learned" else None)
    console.print(table)
    console.print(plain(f"report: {page}"), highlight=False, soft_wrap=True)


def format_interval(found: Mapping[str, float], digits: int) -> str:
    """A mean with its interval."""
    return (
        f"{found['mean']:.{digits}f} [{found['low']:.{digits}f}, {found['high']:.{digits}f}]"
    ).replace("[", r"\[")
