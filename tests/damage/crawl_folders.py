"""Damaged folders of crawls: reported, gone on with offline, exported; and of trainings, whose
policies crawl.

A crawl that goes on has no network here: what its archive does not hold, it does not get.
"""

import asyncio
import json
import random
import shutil
import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import typer
from recorded_sites import Counting, StoppedError, order_of, record

from damage.mutations import damage_folder, replace_file
from damage.one_case import SilentlyWrong
from flatout.runs import write_json
from flatout.slow_envs.clock import run_virtually
from flatout.slow_envs.learner_state import LearnerState
from flatout.slow_envs.model import flatten_weights
from flatout_crawl.choosers.baselines import BestFirst
from flatout_crawl.choosers.evaluate import crawl, policy_chooser
from flatout_crawl.choosers.policy import CrawlPolicy
from flatout_crawl.choosers.scorer import LinkScorer
from flatout_crawl.choosers.session import Prices
from flatout_crawl.choosers.site_task import site_task
from flatout_crawl.choosers.training import (
    CHECKPOINT,
    POLICY,
    CrawlTrainer,
    check_same,
    read_checkpoint,
)
from flatout_crawl.cli import running
from flatout_crawl.cli.learning import School, keep_school, read_school
from flatout_crawl.net.fetching import Answer
from flatout_crawl.net.ledger import AuditEntry, AuditLog, RequestBudget
from flatout_crawl.runs.archive import Archive, RecordingFetcher
from flatout_crawl.runs.archive_task import beside
from flatout_crawl.runs.contest import contest, field_of_site
from flatout_crawl.runs.deployment import Deployment, source_of
from flatout_crawl.runs.graph_export import FILE as GRAPH
from flatout_crawl.runs.live import ROBOTS, RobotsRow, Source
from flatout_crawl.runs.order import ARCHIVE, RUN, CrawlOrder, begin, read_order
from flatout_crawl.runs.report_facts import EVALUATION
from flatout_crawl.runs.visits import JsonLines
from flatout_crawl.sites.site import Site, SiteSettings, generate

COUNT = 1000
KINDS = ("finished", "stopped", "of_a_recording", "training", "evaluation")
RECORDING = "site.sqlite"  # beside the folder of a crawl of a recording
REQUESTS = 40
WEIGHTS_SEED = 1
SCHOOLING = School(1, 100, 3, "truth", (), (), {}, steps=500, envs=2, budget="20-40")
FORGED = (
    "UPDATE pages SET size = -1",
    "UPDATE pages SET size = 9000000000000000000",
    "UPDATE pages SET body = zeroblob(1000000)",
    "UPDATE pages SET status = -1",
    "UPDATE pages SET url = 'javascript:' || url; UPDATE asked SET page = 'javascript:' || page",
    "UPDATE pages SET content_type = replace(hex(zeroblob(1000000)), '0', '<')",
    "UPDATE pages SET failure = '<script>alert(1)</script>', status = 0",
    "UPDATE pages SET failure = 'budget'",
    "UPDATE asked SET requests = 1000000000000",
    "UPDATE asked SET requests = -5",
    "UPDATE asked SET seconds = 9e999",
    "UPDATE asked SET page = 'http://elsewhere.lab/'",
    "DELETE FROM pages",
    "DROP TABLE asked",
    "DROP TABLE pages; CREATE VIEW pages AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x "
    "+ 1 FROM n) SELECT x AS url, 200 AS status, '' AS content_type, '' AS failure, 0 AS size, "
    "x'' AS body FROM n",
    "CREATE TRIGGER t BEFORE INSERT ON pages BEGIN DELETE FROM asked; END",
    "CREATE TABLE more (x)",
    "PRAGMA user_version = 9",
    "PRAGMA application_id = 0",
)


class Offline:
    """A network that is not there."""

    async def fetch(self, url: str) -> Answer:
        return Answer(url, 0, requests=0, failure="budget")

    async def close(self) -> None:
        pass


@cache
def site() -> Site:
    return generate(SiteSettings(seed=5, pages=100, hazards=False))


def prepare(folder: Path) -> None:
    deploy(order_of(site(), requests=REQUESTS), folder / "finished", Counting(site()))
    deploy(
        order_of(site(), requests=REQUESTS),
        folder / "stopped",
        Counting(site(), stops_at=REQUESTS // 2),
    )
    (folder / "of_a_recording").mkdir()
    recording = record(site(), folder / "of_a_recording" / RECORDING)
    order = order_of(site(), requests=REQUESTS, archive=str(recording), allow=())
    begin(folder / "of_a_recording", order)
    with source_of(order, folder / "of_a_recording") as source:
        finish(Deployment(order, folder / "of_a_recording", source))
    teach(folder / "training")
    (folder / "evaluation").mkdir()
    found = contest(lambda seed: BestFirst(), [field_of_site(site())], budget=20)
    write_json(
        folder / "evaluation" / EVALUATION,
        {**found, "assumptions": ["made up"], "settings": {"sites": 1}},
    )


def deploy(order: CrawlOrder, folder: Path, fetcher: Counting) -> None:
    """A crawl with all files that a live one has."""
    begin(folder, order)
    url = f"{site().origin}/robots.txt"
    with (
        RequestBudget(folder, REQUESTS) as budget,
        AuditLog(folder) as audit,
        JsonLines(folder / ROBOTS, RobotsRow) as said,
    ):
        said.add(
            RobotsRow(url, 1.8e9, url, 200, "text/plain", "User-agent: *\nDisallow: /private\n")
        )
        for _ in range(20):
            budget.take("site5.lab")
            audit.write(
                AuditEntry("GET", f"{site().origin}/", "198.51.100.1:80", 200, 4000, 0.2, "")
            )
        with Archive(folder / ARCHIVE) as archive:
            deployment = Deployment(
                order, folder, Source(RecordingFetcher(fetcher, archive), archive, budget)
            )
            try:
                finish(deployment)
            except StoppedError:
                deployment.close()


def finish(deployment: Deployment, bands: Any = None) -> dict[str, Any]:
    """Run a crawl to its end and write what came of it."""
    run_virtually(deployment.run())
    outcome = deployment.finish(bands)
    deployment.close()
    return outcome


def teach(folder: Path) -> None:
    """What a training leaves, without the learning."""
    folder.mkdir()
    school = keep_school(folder, SCHOOLING)
    training = CrawlTrainer([site_task(site())], school.training(), folder, lambda _: None)
    weights = flatten_weights(training.model.new_weights(WEIGHTS_SEED))
    training.save(LearnerState(weights, np.zeros_like(weights), np.ones_like(weights), 4, 2))
    (folder / "metrics.jsonl").write_text('{"steps": 100}\n')


def damage(number: int, originals: Path, folder: Path) -> str:
    rng = random.Random(number)
    kind = rng.choice(KINDS)
    made = folder / kind
    shutil.copytree(originals / kind, made)
    if kind == "of_a_recording":
        run = json.loads((made / RUN).read_text())
        run["order"]["archive"] = str(made / RECORDING)
        (made / RUN).write_text(json.dumps(run, indent=2))
    base = made / (RECORDING if kind == "of_a_recording" else ARCHIVE)
    if base.exists() and rng.random() < 0.25:
        return f"{kind}: {damage_base(base, rng, folder)}"
    shown = (".html", ".gexf")  # written anew, never read
    files = sorted(
        path for path in made.iterdir() if path.suffix not in shown or rng.random() < 0.05
    )
    return f"{kind}: {damage_folder(made, rng, folder, files)}"


def damage_base(path: Path, rng: random.Random, case: Path) -> str:
    """A database: what is in it, the file, or one of those beside it."""
    kind = rng.choice(("forged", "forged", "beside", "bits"))
    if kind == "beside":
        beside_it = Path(f"{path}-{rng.choice(('wal', 'shm', 'journal'))}")
        beside_it.write_bytes(rng.randbytes(rng.choice((0, 100, 5_000))))
        return replace_file(beside_it, rng, case)
    if kind == "bits":
        content = bytearray(path.read_bytes())
        for _ in range(rng.choice((1, 30, 1_000))):
            content[rng.randrange(100, len(content))] ^= 1 << rng.randrange(8)
        path.write_bytes(content)
        return "bits of the database flipped"
    statement = rng.choice(FORGED)
    with closing(sqlite3.connect(path)) as base:
        base.executescript(statement)
        base.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return statement[:80]


def attempt(folder: Path) -> str:
    (made,) = folder.iterdir()
    if made.name == "training":
        return go_on_learning(made)
    if made.name == "evaluation":
        running.report(made, False, True)
        check_page(made)
        return "read"
    running.report(made, False, True)
    check_page(made)
    try:
        running.crawl("run", None, None, made, None, True, True)
    except typer.Exit:
        return "refused in the plan"
    return go_on_crawling(made)


def go_on_crawling(folder: Path) -> str:
    """Resume without a network, and read the graph."""
    order = read_order(folder)
    begin(folder, order)
    with source_of(order, folder) as source:
        if order.is_live:
            offline: Any = RecordingFetcher(Offline(), source.archive)
            source = source._replace(fetcher=offline)
        deployment = Deployment(order, folder, source)
        try:
            asyncio.run(deployment.run())
            bands = {}
            if not order.is_live:
                task = order.task(source.fetcher)
                bands = {
                    k: band._asdict()
                    for k, band in beside(task, order.requests, order.threshold).items()
                }
            deployment.finish(bands)
        finally:
            deployment.close()
    check_page(folder)
    asked = [
        url
        for url, facts in nx.read_gexf(folder / GRAPH).nodes(data=True)
        if facts["asked"] and facts["status"] == 200
    ]
    outside = [url for url in asked if not url.startswith(f"{site().origin}/")]
    if (
        outside
        and order.seed_url == site().seed_url
        and "site5.lab" in (order.allow or ("site5.lab",))
    ):
        raise SilentlyWrong(f"pages out of scope count as read: {outside[:3]}")
    return "read"


def go_on_learning(folder: Path) -> str:
    """All that a training reads before it goes on, and its policy."""
    school = read_school(folder)
    check_same(folder, school.training())
    CrawlTrainer([site_task(site())], school.training(), folder, lambda _: None)
    read_checkpoint(folder / CHECKPOINT)
    policy = CrawlPolicy.load(folder / POLICY)
    made = policy_chooser(policy.act, policy.model.candidates)(0)
    session = run_virtually(crawl(site_task(site()), made, 10, Prices()))
    honest = LinkScorer(
        policy.model.globals, policy.model.columns, width=policy.model.width
    ).new_weights(WEIGHTS_SEED)
    if not np.array_equal(flatten_weights(policy.weights), flatten_weights(honest)):
        raise SilentlyWrong("the policy's weights are not those that were saved")
    return "read" if session.requests else "nothing crawled"


def check_page(folder: Path) -> None:
    """Nothing from a file is a tag of the report."""
    page = (folder / "report.html").read_text()
    if "<script>alert" in page:
        raise SilentlyWrong("the report has a script of somebody else's")
