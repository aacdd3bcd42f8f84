"""The books survive what happens to the process that keeps them."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatout.errors import RunError, SettingsError
from flatout_crawl.net.ledger import (
    AUDIT_FILE,
    BUDGET_FILE,
    LONGEST_LINE,
    STOP_FILE,
    AuditEntry,
    AuditLog,
    RequestBudget,
    printable,
)


def test_requests_are_counted_in_all_and_per_host(tmp_path: Path) -> None:
    with RequestBudget(tmp_path, 5, 3) as budget:
        assert [budget.take("a") for _ in range(3)] == [""] * 3
        assert "3 requests for a" in budget.take("a")
        assert budget.take("b") == "" and budget.take("b") == ""
        assert "all 5" in budget.take("b") and budget.left == 0 and budget.spent == 5


def test_what_is_spent_stays_spent(tmp_path: Path) -> None:
    for day in range(3):
        with RequestBudget(tmp_path, 10) as budget:
            assert budget.spent == 2 * day and budget.left == 10 - 2 * day
            assert budget.take("a") == "" and budget.take("b") == ""
    with RequestBudget(tmp_path, 3) as budget:  # a lower limit than what was spent
        assert budget.left == 0 and budget.take("a")
    with RequestBudget(tmp_path, 10, 3) as budget:
        assert "for a" in budget.take("a") and budget.hosts == {"a": 3, "b": 3}


SPENDER = """
import sys
from pathlib import Path
from flatout_crawl.net.ledger import RequestBudget
budget = RequestBudget(Path(sys.argv[1]), 10**6)
while not budget.take("example.org"):
    print(flush=True)  # the request is sent
"""


def test_a_killed_process_gives_nothing_back(tmp_path: Path) -> None:
    spent = 0
    for _ in range(2):
        process = subprocess.Popen(
            [sys.executable, "-c", SPENDER, str(tmp_path)], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        seen = len(process.stdout.read(200))
        with pytest.raises(RunError, match="another crawl"):
            RequestBudget(tmp_path, 10)
        os.kill(process.pid, signal.SIGKILL)
        seen += len(process.stdout.read())
        process.stdout.close()
        process.wait()
        spent += seen
    with RequestBudget(tmp_path, 10**6) as budget:
        # at most one per process was entered and not sent
        assert spent <= budget.spent <= spent + 2
        assert budget.spent >= 400


def test_half_a_line_counts_as_a_request(tmp_path: Path) -> None:
    (tmp_path / BUDGET_FILE).write_bytes(b"a\na\nexampl")
    with RequestBudget(tmp_path, 10) as budget:
        assert budget.spent == 3 and budget.take("a") == ""
    assert (tmp_path / BUDGET_FILE).read_bytes() == b"a\na\nexampl\na\n"


def test_the_kill_file_stops_everything(tmp_path: Path) -> None:
    with RequestBudget(tmp_path, 10) as budget:
        assert budget.take("a") == ""
        (tmp_path / STOP_FILE).touch()
        assert "STOP" in budget.take("a") and budget.left == 0 and budget.spent == 1
        (tmp_path / STOP_FILE).unlink()
        assert budget.take("a") == ""


def test_bad_budgets_and_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError):
        RequestBudget(tmp_path, -1)
    with pytest.raises(RunError, match="cannot be written"):
        RequestBudget(tmp_path / "absent", 1)


def test_the_audit_log_is_json_without_control_characters(tmp_path: Path) -> None:
    entry = AuditEntry(
        "GET", "http://h/\x1b[2J\r\n\u202e\x9b", "127.0.0.1:80", 200, 5, 0.12345678, ""
    )
    for _ in range(2):
        with AuditLog(tmp_path) as audit:
            audit.write(entry)
    with (tmp_path / AUDIT_FILE).open("ab") as file:
        file.write(b'{"time": "2')  # a writer was killed here
    with AuditLog(tmp_path) as audit:
        audit.write(entry)
    lines = (tmp_path / AUDIT_FILE).read_text().splitlines()
    assert len(lines) == 4
    row = json.loads(lines[-1])
    assert row.pop("time") and row == {**entry._asdict(), "url": "http://h/[2J", "seconds": 0.1235}


@given(st.text(st.characters(), max_size=50))
def test_printable_text_is_harmless(text: str) -> None:
    clean = printable(text)
    assert printable(clean) == clean and "\x1b" not in clean and len(clean.splitlines()) <= 1
    assert clean.encode() is not None
    assert all(c in clean for c in text if c.isalnum() and c.isascii())


def test_books_are_not_kept_through_links_nor_in_pipes_or_holes(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine")
    for name, made in ((AUDIT_FILE, AuditLog), (BUDGET_FILE, lambda run: RequestBudget(run, 5))):
        for kind, message in (("link", "symbolic link"), ("pipe", "is no file")):
            run = tmp_path / f"{kind}-{name}"
            run.mkdir()
            if kind == "link":
                (run / name).symlink_to(outside)
            else:
                os.mkfifo(run / name)
            with pytest.raises(RunError, match=message):
                made(run)
    assert outside.read_text() == "mine"
    with (tmp_path / BUDGET_FILE).open("wb") as hole:
        hole.truncate(1 << 40)
    with pytest.raises(RunError, match="as no crawl has"):
        RequestBudget(tmp_path, 5)


def test_a_long_line_is_one_request(tmp_path: Path) -> None:
    (tmp_path / BUDGET_FILE).write_bytes(b"a\n" + b"x" * (LONGEST_LINE + 10) + b"\nb\n")
    with RequestBudget(tmp_path, 9) as budget:
        assert budget.spent == 3
        assert max(map(len, budget.hosts)) <= 300
