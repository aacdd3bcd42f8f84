"""`flatout crawl` as people use it: real processes, real servers on loopback, kills, and errors in
one sentence.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from typer.testing import CliRunner

from flatout.cli.main import app, main
from flatout_crawl.choosers.observation import GLOBAL
from flatout_crawl.choosers.policy import CrawlPolicy
from flatout_crawl.choosers.scorer import LinkScorer
from flatout_crawl.sites.latency import LatencyDraw
from flatout_crawl.sites.site import Site, SiteSettings, generate
from flatout_crawl.sites.site_server import HOST, Serving, listen, port_of

PATIENCE = 600.0  # seconds that anything here may take on a busy machine
SITE = SiteSettings(seed=5, pages=120)
FLATOUT = Path(sys.executable).with_name("flatout")
Call = Callable[..., tuple[int, str, str]]


class Prompt(Serving):
    """No page is slower than the others."""

    def prepared(self, path: str, head_only: bool) -> tuple[bytes, int, float]:
        return *super().prepare_answer(path, head_only)[:2], 0.0


class Lab:
    """A server in a thread that answers at once, until it is asked to hold: then it answers nobody
    until let go.
    """

    retry_after = 1

    def __init__(self) -> None:
        self.serving = Prompt(generate(SITE), self)  # type: ignore[arg-type]
        self.left, self.holds, self.go_on = -1, threading.Event(), threading.Event()
        self.port = 0

    def draw(self, _: Any) -> LatencyDraw:
        """In place of a wait that is drawn: called for every request, in the server's thread."""
        self.left -= 1
        if self.left == 0:
            self.holds.set()
            assert self.go_on.wait(PATIENCE)
        return LatencyDraw(0.0)

    @contextmanager
    def holding(self, request: int) -> Iterator[None]:
        """Hold at this request from now on; whoever asked waits until the block is left."""
        self.holds.clear(), self.go_on.clear()
        self.left = request
        try:
            yield
        finally:
            self.left = -1
            self.go_on.set()

    @property
    def door(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def origin(self) -> str:
        return f"http://{self.door}"

    @property
    def asked(self) -> int:
        """Requests so far."""
        return self.serving.counters["requests"]


@pytest.fixture(scope="module")
def server() -> Iterator[Lab]:
    lab, listens, done = Lab(), threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        server = await listen(lab.serving)
        lab.port = port_of(server)
        listens.set()
        await done.wait()
        server.close()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert listens.wait(PATIENCE)
    yield lab
    loop.call_soon_threadsafe(done.set)
    thread.join()
    loop.close()


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """The command in this process: exit code, output and errors."""

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["flatout", "crawl", *words])
        with pytest.raises(SystemExit) as exit_:
            app()
        return int(exit_.value.code or 0), *capsys.readouterr()

    return run


def words_for(server: Lab) -> list[str]:
    """The site, and what to look for on it."""
    found = [
        "--seed-url",
        f"{server.origin}/",
        "--allow",
        server.door,
        "--lab",
        server.door,
        "--threshold",
        "0.4",
    ]
    return [*found, "--keywords", *topic(server)]


def topic(server: Lab) -> list[str]:
    assert isinstance(server.serving.site, Site)
    return [*server.serving.site.topic]


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def policy_file(folder: Path) -> Path:
    model = LinkScorer(candidates=16, width=8)
    CrawlPolicy(model, model.new_weights(1)).save(folder / "policy.safetensors")
    return folder / "policy.safetensors"


def started(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [FLATOUT, "crawl", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@contextmanager
def held(server: Lab, request: int, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A crawl in a process of its own, which waits for the answer to this request until the block
    is left.
    """
    with server.holding(request), started("run", *words_for(server), *words) as process:
        try:
            while not server.holds.wait(0.05):
                assert process.poll() is None, process.communicate()
            yield process
        finally:
            process.kill()


def killed_run(server: Lab, folder: Path, how: list[str], request: int) -> list[dict[str, Any]]:
    """A crawl that is killed while it waits for the answer to a request; what it had noted by
    then.
    """
    with held(server, request, *how, "--requests", "60", "--out", str(folder)) as process:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not (folder / "report.html").exists()
    found = rows(folder / "visits.jsonl")
    assert len(found) > request / 2
    return found


@pytest.mark.long
def test_a_killed_crawl_ends_as_one_that_was_not(server: Lab, tmp_path: Path, call: Call) -> None:
    """By best-first search: its choices do not depend on how long answers take, so two crawls can
    be compared.
    """
    how, whole, killed = ["--chooser", "best-first"], tmp_path / "whole", tmp_path / "killed"
    code, out, err = call(
        "run", *words_for(server), *how, "--requests", "60", "--out", str(whole), "--json"
    )
    assert code == 0, err
    unbroken, before = json.loads(out), server.asked
    killed_run(server, killed, how, 30)
    code, out, err = call("run", "--resume", str(killed), "--json")
    assert code == 0, err
    outcome = json.loads(out)
    # the budget, to the request
    assert outcome["sent"] == unbroken["sent"] == 60 == server.asked - before
    path, all_of_it = (
        [row["asked"] for row in rows(run / "visits.jsonl")] for run in (killed, whole)
    )
    lost = unbroken["requests"] - outcome["requests"]
    # the request under way, and where that leaves half of a redirect at the end
    assert 0 <= lost <= 2
    assert path == all_of_it[: len(path)]
    assert len(set(path)) == len(path) >= len(all_of_it) - 2
    found, all_found = rows(killed / "targets.jsonl"), rows(whole / "targets.jsonl")
    assert found == [row for row in all_found if row["request"] <= outcome["requests"]]
    assert len(found) >= 3
    # not asked anew
    assert sum(row["url"].endswith("/robots.txt") for row in rows(killed / "audit.jsonl")) == 1
    assert (killed / "report.html").exists()


@pytest.mark.long
def test_a_killed_crawl_by_a_policy_keeps_what_it_did(
    server: Lab, tmp_path: Path, call: Call
) -> None:
    """A policy sees how long answers take, so another crawl may go another way; this one must keep
    to its own.
    """
    killed = tmp_path / "killed"
    kept = killed_run(server, killed, ["--policy", str(policy_file(tmp_path))], 25)
    asked = server.asked
    code, out, err = call("run", "--resume", str(killed), "--json")
    assert code == 0, err
    visits = rows(killed / "visits.jsonl")
    assert visits[: len(kept)] == kept
    assert len({row["asked"] for row in visits}) == len(visits) > len(kept)
    assert json.loads(out)["sent"] == 60
    assert server.asked - asked <= 60 - len(kept)  # nothing that was noted was asked for again


@pytest.mark.long
def test_an_interrupted_crawl_says_how_to_go_on(server: Lab, tmp_path: Path, call: Call) -> None:
    out = tmp_path / "run"
    with held(server, 14, "--requests", "40", "--out", str(out)) as process:
        process.send_signal(signal.SIGINT)
        answer, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    assert f"interrupted; go on with: flatout crawl run --resume {out}" in err
    assert "Traceback" not in err
    assert "it was interrupted" in answer
    assert (out / "report.html").exists() and (out / "graph.gexf").exists()
    code, _, err = call("run", "--resume", str(out))
    assert code == 0, err
    assert "steps retraced without a request" in err
    assert (out / "requests.log").read_bytes().count(b"\n") == 40


@pytest.mark.long
def test_a_kill_file_stops_and_its_removal_goes_on(server: Lab, tmp_path: Path, call: Call) -> None:
    out = tmp_path / "run"
    with held(server, 14, "--requests", "40", "--out", str(out), "--json") as process:
        (out / "STOP").touch()
        server.go_on.set()
        answer, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert "STOP is there: remove it to go on" in json.loads(answer)["ended"]
    code, _, err = call("run", "--resume", str(out))
    assert (code, "the crawl is refused: budget:" in err) == (2, True)
    (out / "STOP").unlink()
    code, answer, _ = call("run", "--resume", str(out), "--requests", "30", "--json")
    assert (code, json.loads(answer)["sent"]) == (0, 30)


def test_record_then_look_for_something_without_the_network(
    server: Lab, tmp_path: Path, call: Call
) -> None:
    archive = tmp_path / "recorded"
    where = [
        "--seed-url",
        f"{server.origin}/",
        "--allow",
        server.door,
        "--lab",
        server.door,
        "--requests",
        "70",
    ]
    assert call("record", *where, "--out", str(archive), "--json")[0] == 0
    before = server.asked
    what = ["--seed-url", f"{server.origin}/", "--keywords", *topic(server), "--threshold", "0.3"]
    run = ["run", "--archive", str(archive), *what, "--chooser", "shark-search", "--requests", "50"]
    code, out, err = call(*run, "--out", str(tmp_path / "run"), "--json")
    assert code == 0, err
    outcome = json.loads(out)
    assert (outcome["sent"], outcome["is_live"], server.asked) == (0, False, before)
    assert set(outcome["beside"]) == {"random", "breadth-first", "best-first"}
    code, out, _ = call("report", str(tmp_path / "run"), "--json")
    assert (code, json.loads(out)["headline"]) == (
        0,
        f"{outcome['found']} TARGET{'S' * (outcome['found'] != 1)} FOUND",
    )
    code, out, _ = call("report", str(archive))
    assert out.splitlines()[0].endswith("it ended because all 70 requests are spent.")
    assert "pages recorded" in out.splitlines()[0]


def test_a_folder_of_files_is_recorded(tmp_path: Path, call: Call) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "index.html").write_text(
        "".join(f'<a href="{k}.html">page {k}</a>' for k in range(8))
    )
    for k in range(8):
        (folder / f"{k}.html").write_text(
            f"<title>{k}</title><p>text {k} {'solar power ' * 5 * (k == 3)}</p>"
        )
    for _ in range(2):  # begun again it goes on
        code, out, err = call(
            "record", "--folder", str(folder), "--out", str(tmp_path / "rec"), "--json"
        )
        assert code == 0, err
    answer = json.loads(out)
    assert (answer["pages"], answer["seed_url"]) == (9, "http://docs.lab/docs/index.html")
    run = [
        "run",
        "--archive",
        answer["archive"],
        "--seed-url",
        answer["seed_url"],
        "--keywords",
        "solar power",
    ]
    code, out, _ = call(*run, "--out", str(tmp_path / "run"))
    assert (code, out.splitlines()[0]) == (
        0,
        "1 target found: 9 requests; it ended because no link is left.",
    )
    assert rows(tmp_path / "run" / "targets.jsonl")[0]["url"] == "http://docs.lab/docs/3.html"


def test_a_dry_run_asks_for_nothing_and_writes_nothing(
    server: Lab, tmp_path: Path, call: Call
) -> None:
    before = server.asked
    code, out, _ = call("run", *words_for(server), "--out", str(tmp_path / "run"), "--dry-run")
    assert code == 0
    assert out.splitlines()[-1].startswith("would crawl: ")
    assert "nothing was asked for" in out
    assert not (tmp_path / "run").exists()
    assert server.asked == before
    code, out, _ = call(
        "run",
        "--seed-url",
        "http://a.example.org/",
        "--allow",
        "a.example.org",
        "--keywords",
        "x",
        "--dry-run",
    )
    assert code == 1
    assert "names nobody to turn to" in out
    assert out.splitlines()[-1].startswith("would be refused: ")


def test_the_doctor_tells_a_live_server_from_a_dead_one(server: Lab, call: Call) -> None:
    code, out, _ = call("doctor", *words_for(server))
    assert (code, out.splitlines()[-1]) == (0, "a crawl may begin")
    gone = [word.replace(str(server.port), "9") for word in words_for(server)]
    code, out, _ = call("doctor", *gone, "--json")
    answer = json.loads(out)
    assert (code, answer["ok"]) == (1, False)
    assert "is the server running" in answer["refused"]
    code, _, err = call("run", *gone, "--out", os.devnull + "/x")
    assert code == 2
    assert err.startswith("error: ")


def test_a_dead_server_refuses_a_run(tmp_path: Path, call: Call) -> None:
    where = [
        "--seed-url",
        "http://127.0.0.1:9/",
        "--allow",
        "127.0.0.1:9",
        "--lab",
        "127.0.0.1:9",
        "--keywords",
        "x",
    ]
    code, _, err = call("run", *where, "--out", str(tmp_path / "run"))
    assert code == 2
    assert "the seed page http://127.0.0.1:9/ gave no answer (connection)" in err


LAB = ["--seed-url", "http://127.0.0.1:9/", "--lab", "127.0.0.1:9"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["run", *LAB, "--keywords", "x"],
            ("the allow-list is empty; name the hosts that may be crawled"),
        ),
        (["run", *LAB, "--allow", "*.com", "--keywords", "x"], "that domain has many owners"),
        (
            [
                "run",
                "--seed-url",
                "http://10.0.0.1/",
                "--allow",
                "10.0.0.1",
                "--lab",
                "10.0.0.1:80",
                "--keywords",
                "x",
            ],
            "only a loopback address with a port can",
        ),
        (["run", *LAB, "--allow", "127.0.0.1:9", "--regex", "("], "'(' is no regular expression"),
        (["run", *LAB, "--allow", "127.0.0.1:9", "--css", "a["], "is no CSS selector"),
        (["run", *LAB, "--allow", "127.0.0.1:9"], "nothing to look for was given: give --keywords"),
        (
            ["run", *LAB, "--allow", "127.0.0.1:9", "--examples", "nowhere.txt"],
            ("nowhere.txt: there is no such file"),
        ),
        (
            ["run", *LAB, "--allow", "127.0.0.1:9", "--keywords", "x", "--chooser", "luck"],
            ("there is no chooser 'luck'"),
        ),
        (
            ["run", *LAB, "--allow", "127.0.0.1:9", "--keywords", "x", "--policy", "nowhere"],
            "nowhere is not there",
        ),
        (
            ["run", *LAB, "--allow", "127.0.0.1:9", "--keywords", "x", "--requests", "1"],
            ("leave none after the seed"),
        ),
        (["run", "--allow", "a.lab", "--keywords", "x"], "no page to begin at was given"),
        (["run", "--resume", "nowhere"], "nowhere holds no crawl"),
        (
            ["run", "--seed-url", "http://a.lab/", "--archive", "nowhere", "--keywords", "x"],
            "there is no archive",
        ),
        (["train", "--sites", "0"], "no sites were given"),
        (["train", "--archive", "x"], "1 archives and 0 seed URLs were given"),
        (["train", "--budget", "9-3"], "a budget of '9-3'"),
        (["train", "--judge", "me"], "there is no judge 'me'"),
        (["eval", "nowhere.safetensors"], "nowhere.safetensors is not there"),
        (["report", "nowhere"], "nowhere holds neither a crawl (run.json) nor an evaluation"),
        (["record", "--folder", "nowhere"], "there is no such folder"),
    ],
)
def test_what_is_refused_is_said_in_a_sentence(
    call: Call, words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = call(*words)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1


def test_a_policy_for_other_columns_is_refused(tmp_path: Path, call: Call) -> None:
    facts = {
        "format": "flatout.crawl-policy", "version": 1, "global_columns": GLOBAL,
        "link_columns": ["shoe_size"],
        "candidates": 4, "width": 4, "sha256": "", "notes": {},
    }  # fmt: skip
    weights = {"weights": np.zeros(1, np.float32)}
    (tmp_path / "p.safetensors").write_bytes(
        safetensors.numpy.save(weights, {"facts": json.dumps(facts)})
    )
    code, _, err = call(
        "run",
        *LAB,
        "--allow",
        "127.0.0.1:9",
        "--keywords",
        "x",
        "--policy",
        str(tmp_path / "p.safetensors"),
    )
    assert code == 2
    assert "was trained on other link columns" in err
    assert "shoe_size" in err


def test_an_evaluation_says_first_that_an_untaught_policy_beats_nobody(
    tmp_path: Path, call: Call
) -> None:
    trial = ["eval", str(policy_file(tmp_path)), "--sites", "1", "--pages", "100", "--budget", "20"]
    code, out, err = call(*trial, "--out", str(tmp_path / "a"), "--gate")
    assert code == 3, err
    assert out.splitlines()[0].startswith("The learned policy does NOT beat best-first")
    found = json.loads((tmp_path / "a" / "evaluation.json").read_text())
    assert next(iter(found)) == "verdict"
    assert found["verdict"]["beats"] is False
    assert {"oracle", "learned", "random"} <= {row["chooser"] for row in found["choosers"]}
    code, out, _ = call("report", str(tmp_path / "a"))
    assert (code, out.startswith("Does not beat its rivals: The learned policy does NOT beat")) == (
        0,
        True,
    )


def test_sites_that_taught_a_policy_cannot_judge_it(tmp_path: Path, call: Call) -> None:
    model = LinkScorer(candidates=16, width=8)
    school = {
        "site_seed": 10,
        "sites": 5,
        "pages": 100,
        "archives": [str(tmp_path / "a")],
        "seed_urls": ["http://a.lab/"],
    }
    CrawlPolicy(model, model.new_weights(1), {"school": school}).save(tmp_path / "p.safetensors")
    trial = ["eval", str(tmp_path / "p.safetensors"), "--pages", "100"]
    code, _, err = call(*trial, "--sites", "3", "--site-seed", "12")
    assert (code, "learned on the sites with seeds 10 to 14" in err) == (2, True)
    code, _, err = call(
        *trial, "--archive", str(tmp_path / "a"), "--seed-url", "http://a.lab/", "--keywords", "x"
    )
    assert (code, "try it on a recording that it never saw" in err) == (2, True)


@pytest.mark.parametrize("verb", ["", "doctor", "record", "run", "train", "eval", "report"])
def test_every_verb_has_help_and_json(verb: str) -> None:
    result = CliRunner().invoke(
        main, ["crawl", *([verb] if verb else []), "--help"], env={"COLUMNS": "200"}
    )
    assert result.exit_code == 0
    assert ("--json" in result.output) == bool(verb)


@pytest.mark.slow
def test_training_survives_a_kill_and_ends_with_a_policy(tmp_path: Path) -> None:
    out = tmp_path / "train"
    words = [
        "train",
        "--sites",
        "2",
        "--pages",
        "100",
        "--envs",
        "4",
        "--budget",
        "30",
        "--steps",
        "9000",
        "--out",
        str(out),
    ]
    process, noted = started(*words), out / "metrics.jsonl"
    while not noted.exists() or noted.read_bytes().count(b"\n") < 2:
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    again = subprocess.run(
        [FLATOUT, "crawl", "train", "--resume", out], capture_output=True, text=True, check=False
    )
    assert again.returncode == 0, again.stderr
    assert f"next: flatout crawl eval {out / 'policy.safetensors'}" in again.stdout
    assert CrawlPolicy.load(out / "policy.safetensors").notes["school"]["sites"] == 2
    other = subprocess.run(
        [FLATOUT, "crawl", *words, "--sites", "3"], capture_output=True, text=True, check=False
    )
    assert (other.returncode, "was begun with sites=2" in other.stderr) == (2, True)
