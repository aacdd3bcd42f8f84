"""Archives that somebody forged: refused with a sentence, before they cost memory, time or
somebody's files.
"""

import os
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path

import pytest

from flatout.errors import RunError
from flatout_crawl.net.fetching import Answer
from flatout_crawl.runs.archive import MOST_BYTES, Archive
from flatout_crawl.runs.sqlite_files import SUPER_JOURNAL, check_neighbours

URL = "http://example.org/a"
ENDLESS = """
CREATE VIEW {name} AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)
SELECT x AS url, x AS page, x AS host, 1.0 AS seconds, 1 AS requests, 1.0 AS recorded_at FROM n
"""


def forged(path: Path, *statements: str, body: bytes = b"<p>page") -> Path:
    """An archive with one page, after these statements."""
    with Archive(path) as archive:
        archive.put(Answer(URL, 200, body, "text/html", 0.5, 1), URL)
    with closing(sqlite3.connect(path)) as base:
        base.execute("PRAGMA writable_schema = 1")
        for statement in statements:
            base.execute(statement)
        base.commit()
    return path


def refused(path: Path, message: str) -> None:
    with pytest.raises(RunError, match=message), Archive(path, read_only=True) as archive:
        archive.get(URL)


@pytest.mark.parametrize("size", [-1, -(2**63), MOST_BYTES + 1, 2**63 - 1])
def test_a_size_that_no_page_has_is_refused_before_anything_is_unpacked(
    tmp_path: Path, size: int
) -> None:
    path = forged(tmp_path / "a.sqlite", f"UPDATE pages SET size = {size}")
    refused(path, "the page http://example.org/a: size: Input should be")


def test_a_page_that_is_larger_than_it_says_is_not_unpacked_further(tmp_path: Path) -> None:
    path = forged(tmp_path / "a.sqlite", body=bytes(50_000_000))
    with closing(sqlite3.connect(path)) as base:
        base.execute("UPDATE pages SET size = 10")
        base.commit()
    refused(path, "a page is not 10 bytes long")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            "asked SET requests = 1000000000000",
            "requests: Input should be less than or equal to 1000",
        ),
        ("asked SET requests = -1", "requests: Input should be greater than or equal to 0"),
        ("asked SET seconds = 9e999", "seconds: Input should be a finite number"),
        ("pages SET status = 1000", "status: Input should be less than"),
        ("pages SET failure = hex(zeroblob(1000))", "failure: String should have at most 100"),
        ("pages SET body = x'00'", "damaged: a page is not 7 bytes long"),
    ],
)
def test_values_that_no_page_has_are_refused_by_name(
    tmp_path: Path, change: str, message: str
) -> None:
    refused(forged(tmp_path / "a.sqlite", f"UPDATE {change}"), message)


def test_a_page_that_ends_at_no_url_is_refused(tmp_path: Path) -> None:
    bad = "javascript:alert(1)"
    path = forged(
        tmp_path / "a.sqlite", f"UPDATE pages SET url = '{bad}'", f"UPDATE asked SET page = '{bad}'"
    )
    refused(path, "'javascript:alert.1.' is no page's URL")


@pytest.mark.parametrize(
    "statements",
    [
        ("DROP TABLE asked", ENDLESS.format(name="asked")),
        (ENDLESS.format(name="more"),),
        ("CREATE TRIGGER t BEFORE INSERT ON pages BEGIN DELETE FROM asked; END",),
        ("CREATE TABLE more (x)",),
        ("DROP INDEX asked_host",),
        ("UPDATE sqlite_schema SET sql = replace(sql, 'STRICT, ', '') WHERE name = 'pages'",),
    ],
    ids=["view", "more-view", "trigger", "table", "index", "not-strict"],
)
def test_other_tables_than_an_archives_are_refused(
    tmp_path: Path, statements: tuple[str, ...]
) -> None:
    refused(forged(tmp_path / "a.sqlite", *statements), "its tables are not those of an archive")


def test_flipped_bits_are_told_or_do_not_matter(tmp_path: Path) -> None:
    path = forged(tmp_path / "a.sqlite", body=b"x" * 100_000)
    whole, explained = path.read_bytes(), 0
    for place in range(100, len(whole), len(whole) // 150):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            with Archive(path, read_only=True) as archive:
                archive.sites(), archive.urls()
                found = archive.get(URL)
                assert found is None or zlib.crc32(found.body) == zlib.crc32(b"x" * 100_000)
        except RunError:
            explained += 1
    assert explained >= 3


@pytest.mark.parametrize("ending", ["wal", "shm", "journal"])
def test_links_and_pipes_beside_an_archive_are_refused(tmp_path: Path, ending: str) -> None:
    path, outside = forged(tmp_path / "a.sqlite"), tmp_path / "outside"
    outside.write_text("mine")
    beside = Path(f"{path}-{ending}")
    beside.unlink(missing_ok=True)
    beside.symlink_to(outside)
    refused(path, "is a symbolic link to")
    beside.unlink()
    os.mkfifo(beside)
    refused(path, "is no file")
    assert outside.read_text() == "mine"


def test_a_journal_that_names_a_file_to_be_deleted_is_refused(tmp_path: Path) -> None:
    path = forged(tmp_path / "a.sqlite")
    Path(f"{path}-journal").write_bytes(b"anything" * 100 + SUPER_JOURNAL)
    refused(path, "names another file, which SQLite would delete")
    for harmless in (b"", b"short", b"anything" * 100):
        Path(f"{path}-journal").write_bytes(harmless)
        check_neighbours(path)
