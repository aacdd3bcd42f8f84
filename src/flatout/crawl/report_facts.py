"""What a crawl's report is made of: the files of its folder, read as one mapping of plain values.

All text in them came from pages and servers, and files may come from others: control characters are stripped here
again. What the values mean is not known here, nor how they are shown.
"""

import json
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from flatout.crawl.ledger import AUDIT_FILE, printable
from flatout.crawl.order import RUN
from flatout.crawl.scope import canonical, origin_of
from flatout.errors import RunError

EVALUATION = "evaluation.json"
MOST_TARGETS = 2_000  # listed on the page; all are in the file


def gather(folder: Path) -> dict[str, Any]:
    """The facts of a run or an evaluation."""
    if (folder / EVALUATION).is_file():
        return {"kind": "evaluation", **clean(read(folder / EVALUATION))}
    if not (folder / RUN).is_file():
        raise RunError(
            f"{folder} holds neither a crawl ({RUN}) nor an evaluation ({EVALUATION}): give the --out folder of "
            "`flatout crawl run`, `record` or `eval`"
        )
    targets = list(rows(folder / "targets.jsonl"))
    facts = {
        "kind": "run",
        "run": read(folder / RUN),
        "outcome": read(folder / "outcome.json") if (folder / "outcome.json").is_file() else {},
        "targets": targets[:MOST_TARGETS],
        "targets_in_all": len(targets),
        "audit": audit(folder),
        "robots": [robots_facts(row) for row in rows(folder / "robots.jsonl")],
        "files": [name for name in FILES if (folder / name).exists()],
    }
    return dict(clean(facts))


FILES = ("targets.jsonl", "archive.sqlite", "graph.gexf", "audit.jsonl", "outcome.json", "run.json", "visits.jsonl")


def read(path: Path) -> dict[str, Any]:
    """A file with a JSON mapping."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError("it is no mapping")
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read: {error}; run the crawl again in another folder") from None
    return found


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """The mappings in a file of JSON lines; the half line that a kill left is passed over, as are lines cut by one."""
    if not path.is_file():
        return
    with path.open("rb") as lines:
        for line in lines:
            if line.startswith(b"{") and line.endswith(b"}\n"):
                try:
                    row = json.loads(line)
                except ValueError as error:
                    raise RunError(f"{path} is damaged: {error}; run the crawl again in another folder") from None
                yield row


def clean(value: Any) -> Any:
    """The same without control characters in any text."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Mapping):
        return {printable(str(key)): clean(part) for key, part in value.items()}
    return [clean(part) for part in value] if isinstance(value, list | tuple) else value


def audit(folder: Path) -> dict[str, Any]:
    """What the audit log tells: requests per host, how they ended, and how far apart they began."""
    hosts: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows(folder / AUDIT_FILE):
        known = canonical(str(row.get("url", "")))
        hosts[f"{origin_of(known).host}:{origin_of(known).port}" if known else "unknown"].append(row)
    return {"hosts": {host: host_facts(some) for host, some in hosts.items()}}


def host_facts(some: list[dict[str, Any]]) -> dict[str, Any]:
    """One host's requests."""
    begun = sorted(datetime.fromisoformat(row["time"]).timestamp() - float(row["seconds"]) for row in some)
    gaps = [later - earlier for earlier, later in pairwise(begun)]
    ends = Counter(str(row["failure"] or f"status {row['status']}") for row in some)
    return {
        "requests": len(some),
        "ends": dict(ends.most_common()),
        "megabytes": sum(int(row["bytes"]) for row in some) / 1e6,
        "median_seconds": statistics.median(float(row["seconds"]) for row in some),
        "shortest_gap": max(0.0, min(gaps)) if gaps else None,
        "median_gap": statistics.median(gaps) if gaps else None,
        "robots": sum(str(row["url"]).endswith("/robots.txt") for row in some),
    }


def robots_facts(row: Mapping[str, Any]) -> dict[str, Any]:
    """What became of a robots.txt."""
    return {"url": row.get("asked"), "status": row.get("status"), "bytes": len(str(row.get("body", "")))}
