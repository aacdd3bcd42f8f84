"""Options that several verbs of `flatout crawl` share."""

from pathlib import Path
from typing import Annotated

import typer

from flatout.cli.options import SpaceSeparated


class ManyValues(SpaceSeparated):
    """`--keywords "solar power" wind` as people write it."""

    lists = ("--allow", "--lab", "--keywords", "--examples")


SeedUrl = Annotated[str | None, typer.Option("--seed-url", help="The page to begin at.")]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        help="What may be asked for: docs.example.org, docs.example.org/guide/ or *.example.org.",
        metavar="HOST",
    ),
]
LabDoors = Annotated[
    list[str] | None,
    typer.Option(
        "--lab", help="A server of your own on loopback: 127.0.0.1:8123.", metavar="HOST:PORT"
    ),
]
Keywords = Annotated[
    list[str] | None,
    typer.Option("--keywords", help='Words or phrases to look for: --keywords "solar power" wind'),
]
Examples = Annotated[
    list[str] | None,
    typer.Option("--examples", help="Text files like the pages looked for.", metavar="FILE"),
]
Css = Annotated[
    str | None, typer.Option("--css", help="Pages in which this CSS selector finds something.")
]
Regex = Annotated[str | None, typer.Option("--regex", help="Pages whose title or text match this.")]
TopicWords = Annotated[
    str,
    typer.Option("--topic", help="Words to compare links with; else those of what is looked for."),
]
Threshold = Annotated[
    float, typer.Option("--threshold", help="Relevance from which on a page is a target.")
]
Requests = Annotated[
    int | None, typer.Option("--requests", help="The most that may be sent, robots.txt included.")
]
OneArchive = Annotated[
    Path | None,
    typer.Option(
        "--archive", help="A recording to use instead of the network: a file or a run's folder."
    ),
]
Agent = Annotated[
    str,
    typer.Option(
        "--user-agent", help="Who you are, with a contact: 'name/1.0 (+https://example.org/bot)'."
    ),
]
Delay = Annotated[
    float | None,
    typer.Option(
        "--delay", help="Seconds between two requests to a host: 1 or more at public ones."
    ),
]
RunFolder = Annotated[
    Path | None, typer.Option("--out", help="The run's folder; if it holds this crawl, it goes on.")
]
Resume = Annotated[
    Path | None, typer.Option("--resume", help="Go on with the crawl in this folder.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be done, and ask for nothing.")
]
ChooserName = Annotated[
    str | None,
    typer.Option(
        "--chooser",
        help="How links are chosen without a policy: best-first, breadth-first, kind-bandit, ...",
    ),
]
Judges = Annotated[
    str,
    typer.Option(
        "--judge",
        help="Who judges pages of made-up sites: truth, or keywords as a user would write them.",
    ),
]
Archives = Annotated[
    list[Path] | None,
    typer.Option("--archive", help="A recording, a file or a run's folder; may be repeated."),
]
SeedUrls = Annotated[
    list[str] | None, typer.Option("--seed-url", help="Where to begin in it; one per --archive.")
]
