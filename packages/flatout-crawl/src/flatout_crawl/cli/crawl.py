"""`flatout crawl`: find pages with few requests. The verbs and their options.

What they do is in `running.py`, `learning.py` and `evaluating.py`. These are imported when a verb
is called: they load aiohttp and PyTorch, which `flatout --help` need not wait for.
"""

from pathlib import Path
from typing import Annotated

import typer

from flatout.cli.options import Json, Seed
from flatout_crawl.cli.crawl_options import (
    Agent,
    Allow,
    Archives,
    ChooserName,
    Css,
    Delay,
    DryRun,
    Examples,
    Judges,
    Keywords,
    LabDoors,
    ManyValues,
    OneArchive,
    Regex,
    Requests,
    Resume,
    RunFolder,
    SeedUrl,
    SeedUrls,
    Threshold,
    TopicWords,
)

app = typer.Typer(
    no_args_is_help=True,
    help="Find the pages you look for on a site, politely and with few requests.",
)


@app.command("doctor", cls=ManyValues)
def doctor_command(
    seed_url: SeedUrl = None,
    allow: Allow = None,
    lab: LabDoors = None,
    archive: OneArchive = None,
    keywords: Keywords = None,
    examples: Examples = None,
    css: Css = None,
    regex: Regex = None,
    topic: TopicWords = "",
    threshold: Threshold = 0.5,
    requests: Requests = None,
    user_agent: Agent = "",
    delay: Delay = None,
    out: RunFolder = None,
    as_json: Json = False,
) -> None:
    """Check whether a crawl would be refused, and why; asks for robots.txt and the seed page
    only.
    """
    from flatout_crawl.cli import running

    rule = running.rule_from(keywords, examples, css, regex)
    order = running.order_from(
        seed_url,
        allow=allow,
        lab=lab,
        archive=archive,
        rule=rule,
        topic=topic,
        threshold=threshold,
        requests=requests,
        user_agent=user_agent,
        delay_seconds=delay,
    )
    running.doctor(order, out, as_json)


@app.command("record", cls=ManyValues)
def record_command(
    seed_url: SeedUrl = None,
    allow: Allow = None,
    lab: LabDoors = None,
    folder: Annotated[
        Path | None, typer.Option("--folder", help="Record a folder of HTML files instead.")
    ] = None,
    pydoc: Annotated[
        bool, typer.Option("--pydoc", help="Record Python's own documentation instead.")
    ] = False,
    keywords: Keywords = None,
    chooser: ChooserName = None,
    requests: Requests = None,
    user_agent: Agent = "",
    delay: Delay = None,
    seed: Seed = 0,
    out: RunFolder = None,
    resume: Resume = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Record a site into an archive, breadth-first; each page is asked for once ever, and a kill
    loses nothing.
    """
    from flatout_crawl.cli import running

    if folder or pydoc:
        running.record_files(folder, out, requests, as_json)
        return
    order = None
    if resume is None:
        order = running.order_from(
            seed_url,
            allow=allow,
            lab=lab,
            archive=None,
            rule=running.rule_from(keywords, examples=None, css=None, regex=None),
            chooser=chooser or "breadth-first",
            requests=requests,
            user_agent=user_agent,
            delay_seconds=delay,
            seed=seed,
        )
    running.crawl(
        "record",
        order=order,
        out=out,
        resume=resume,
        requests=requests,
        dry_run=dry_run,
        as_json=as_json,
    )


@app.command("run", cls=ManyValues)
def run_command(
    seed_url: SeedUrl = None,
    allow: Allow = None,
    lab: LabDoors = None,
    policy: Annotated[
        Path | None,
        typer.Option("--policy", help="A learned way of choosing links: policy.safetensors."),
    ] = None,
    chooser: ChooserName = None,
    keywords: Keywords = None,
    examples: Examples = None,
    css: Css = None,
    regex: Regex = None,
    topic: TopicWords = "",
    threshold: Threshold = 0.5,
    requests: Requests = None,
    archive: OneArchive = None,
    user_agent: Agent = "",
    delay: Delay = None,
    seed: Seed = 0,
    out: RunFolder = None,
    resume: Resume = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Crawl a site, or a recording of one, for what you look for; writes targets.jsonl as they are
    found.
    """
    from flatout_crawl.cli import running

    order = None
    if resume is None:
        order = running.order_from(
            seed_url,
            allow=allow,
            lab=lab,
            archive=archive,
            rule=running.rule_from(keywords, examples, css, regex, needed=True),
            policy=policy,
            chooser=chooser,
            topic=topic,
            threshold=threshold,
            requests=requests,
            user_agent=user_agent,
            delay_seconds=delay,
            seed=seed,
        )
    running.crawl(
        "run",
        order=order,
        out=out,
        resume=resume,
        requests=requests,
        dry_run=dry_run,
        as_json=as_json,
    )


@app.command("train", cls=ManyValues)
def train_command(
    sites: Annotated[
        int | None,
        typer.Option(
            "--sites", min=0, help="Made-up sites to learn on; 100, or none with --archive."
        ),
    ] = None,
    pages: Annotated[int, typer.Option("--pages", help="Pages of each of them, about.")] = 400,
    site_seed: Annotated[
        int, typer.Option("--site-seed", min=0, help="Seed of the first site.")
    ] = 0,
    judge: Judges = "truth",
    latency: Annotated[
        str, typer.Option("--latency", help="Made-up waits: none, constant:0.05, ...")
    ] = "none",
    archive: Archives = None,
    seed_url: SeedUrls = None,
    keywords: Keywords = None,
    examples: Examples = None,
    css: Css = None,
    regex: Regex = None,
    steps: Annotated[
        int | None,
        typer.Option("--steps", min=1, help="Requests that it learns from, in all; 200,000."),
    ] = None,
    envs: Annotated[int, typer.Option("--envs", min=1, help="Crawls at a time.")] = 32,
    budget: Annotated[
        str, typer.Option("--budget", help="Requests of one crawl: 100, or a range.")
    ] = "60-1200",
    learning_rate: Annotated[
        float, typer.Option("--learning-rate", help="Of the first update; falls.")
    ] = 1e-3,
    seed: Seed = 0,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="The run's folder; if it holds this training, it goes on."),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option("--resume", help="Go on with the training in this folder.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Learn to choose links: on made-up sites, offline, or on recordings; a kill loses little."""
    from flatout_crawl.cli import learning, running

    school = learning.School(
        sites=sites if sites is not None else (0 if archive else 100),
        pages=pages,
        site_seed=site_seed,
        judge=judge,
        latency=latency,
        archives=tuple(str(path) for path in archive or ()),
        seed_urls=tuple(seed_url or ()),
        relevance=running.rule_from(keywords, examples, css, regex),
        steps=steps or 200_000,
        envs=envs,
        budget=budget,
        learning_rate=learning_rate,
        seed=seed,
    )
    learning.train(school, steps=steps, out=out, resume=resume, as_json=as_json)


@app.command("eval", cls=ManyValues)
def eval_command(
    policy: Annotated[
        Path, typer.Argument(help="policy.safetensors, or the folder of its training.")
    ],
    sites: Annotated[
        int | None,
        typer.Option(
            "--sites", min=0, help="Made-up sites that it never saw; 10, or none with --archive."
        ),
    ] = None,
    pages: Annotated[int, typer.Option("--pages", help="Pages of each of them, about.")] = 400,
    site_seed: Annotated[
        int, typer.Option("--site-seed", min=0, help="Seed of the first site.")
    ] = 10_000,
    judge: Judges = "truth",
    archive: Archives = None,
    seed_url: SeedUrls = None,
    keywords: Keywords = None,
    examples: Examples = None,
    css: Css = None,
    regex: Regex = None,
    budget: Annotated[
        int | None,
        typer.Option(
            "--budget", min=2, help="Requests of one crawl; else as many as the site has pages."
        ),
    ] = None,
    seeds: Annotated[
        int, typer.Option("--seeds", min=1, help="Crawls of each site by each chooser.")
    ] = 1,
    gate: Annotated[
        bool, typer.Option("--gate", help="Exit with code 3 unless it beats its rivals.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for evaluation.json and report.html.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Does a policy beat best-first search and the bandits on sites it never saw? Says so, or that
    it does not.
    """
    from flatout_crawl.cli import evaluating, running

    exam = evaluating.Exam(
        policy=str(policy),
        sites=sites if sites is not None else (0 if archive else 10),
        pages=pages,
        site_seed=site_seed,
        judge=judge,
        archives=tuple(str(path) for path in archive or ()),
        seed_urls=tuple(seed_url or ()),
        relevance=running.rule_from(keywords, examples, css, regex),
        budget=budget,
        seeds=seeds,
    )
    evaluating.evaluate(exam, out, gate, as_json)


@app.command("report")
def report_command(
    folder: Annotated[
        Path, typer.Argument(help="The folder of a crawl, a recording or an evaluation.")
    ],
    show_page: Annotated[
        bool, typer.Option("--open", help="Open the page in the browser.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write report.html again from the folder's files, offline, and say what it says first."""
    from flatout_crawl.cli import running

    running.report(folder, show_page, as_json)
