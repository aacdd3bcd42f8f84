"""Folders of HTML as sites, pydoc's pages, and both recorded into an archive."""

from pathlib import Path

import pytest

from flatout.errors import RunError, SettingsError
from flatout_crawl.net.fetching import Answer
from flatout_crawl.net.scope import canonical
from flatout_crawl.reading.parsing import read_page
from flatout_crawl.runs.archive import Archive
from flatout_crawl.sites.documentation import Tree, library_modules, pydoc_site, record_tree


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "the docs"
    (root / "part").mkdir(parents=True)
    (root / "index.html").write_text(
        '<title>Start</title><a href="part/a.html">a</a><a href="part/">part</a><a '
        'href="gone.html">gone</a>'
        '<a href="picture.png">p</a><a href="http://other.lab/">other</a><a '
        'href="../secret.html">up</a>'
    )
    (root / "part" / "a.html").write_text(
        '<title>A</title><a href="../index.html">up</a><a href="b%20c.html">b</a>'
    )
    (root / "part" / "b c.html").write_text("<title>B</title>")
    (root / "part" / "index.html").write_text("<title>Part</title>")
    (root / "picture.png").write_bytes(b"\x89PNG")
    (tmp_path / "secret.html").write_text("secret")
    (root / "outside.html").symlink_to(tmp_path / "secret.html")
    return root


def test_files_are_pages(folder: Path) -> None:
    tree = Tree(folder)
    assert tree.seed_url == "http://docs.lab/the%20docs/index.html"
    assert list(tree.files()) == [
        "index.html",
        "outside.html",
        "part/a.html",
        "part/b c.html",
        "part/index.html",
    ]
    for file in ("index.html", "part/a.html", "part/b c.html"):
        status, headers, body = tree.answer(tree.url(file))
        assert (status, headers["content-type"], body) == (
            200,
            "text/html",
            (folder / file).read_bytes(),
        )
    assert tree.answer("/the%20docs/part/").body == (folder / "part" / "index.html").read_bytes()
    assert tree.answer("/the%20docs/picture.png?x=1").headers["content-type"] == "image/png"
    assert tree.answer("/robots.txt").body.startswith(b"User-agent")
    assert tree.answer("/").headers["location"] == "/the%20docs/index.html"


@pytest.mark.parametrize(
    "path",
    [
        "../secret.html",
        "%2e%2e/secret.html",
        "part/../../secret.html",
        "/etc/passwd",
        "//etc/passwd",
        "outside.html",
        "a%00b",
        "none",
    ],
)
def test_nothing_outside_the_folder_is_read(folder: Path, path: str) -> None:
    assert Tree(folder).answer(f"/the%20docs/{path}").status == 404


def test_a_start_may_be_given_and_is_found_without_an_index(folder: Path) -> None:
    assert Tree(folder, "x", start="part/a.html").seed_url == "http://docs.lab/x/part/a.html"
    (folder / "index.html").unlink()
    assert Tree(folder, "x", host="h.lab").seed_url == "http://h.lab/x/outside.html"


def test_folders_without_pages_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no such folder"):
        Tree(tmp_path / "nowhere")
    with pytest.raises(SettingsError, match="holds no HTML files"):
        Tree(tmp_path)


def test_a_tree_is_recorded_by_its_links(folder: Path, tmp_path: Path) -> None:
    tree = Tree(folder, "d")
    with Archive(tmp_path / "archive.sqlite") as archive:
        assert record_tree(tree, archive) == 5
        statuses = {}
        for url in archive.urls():
            answer = archive.get(url)
            assert answer is not None
            statuses[url.removeprefix("http://docs.lab/d/")] = answer.status
            assert answer.status != 200 or answer.body == tree.answer(url).body
    assert statuses == {
        "index.html": 200,
        "part/a.html": 200,
        "part/": 200,
        "part/b%20c.html": 200,
        "gone.html": 404,
    }


def test_recording_stops_at_the_limit(folder: Path, tmp_path: Path) -> None:
    with Archive(tmp_path / "archive.sqlite") as archive:
        assert record_tree(Tree(folder, "d"), archive, limit=2) == 2
        assert archive.count == 2


def test_pydoc_writes_the_library(tmp_path: Path) -> None:
    tree = pydoc_site(tmp_path / "pydoc", limit=14)
    files = list(tree.files())
    assert len(files) == 15 and "abc.html" in files and "asyncio.html" in files
    page = read_page(
        Answer(tree.seed_url, *tree.answer(tree.seed_url)[::2], "text/html"), canonical
    )
    assert f"{tree.origin}/pydoc/argparse.html" in [link.url for link in page.links]
    module = read_page(
        Answer(tree.url("abc.html"), *tree.answer("/pydoc/abc.html")[::2], "text/html"), canonical
    )
    assert "Abstract Base Classes" in module.text
    stamp = (tmp_path / "pydoc" / "abc.html").stat().st_mtime_ns
    pydoc_site(tmp_path / "pydoc", limit=14)
    assert (tmp_path / "pydoc" / "abc.html").stat().st_mtime_ns == stamp  # made once


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "pydoc" / "index.html").mkdir(parents=True)
    with pytest.raises(RunError, match="could not be written"):
        pydoc_site(tmp_path / "pydoc", limit=1)


def test_library_modules_are_many_and_none_of_those_that_act_when_imported() -> None:
    names = library_modules()
    assert len(names) > 250 and len(set(names)) == len(names)
    assert not {"this", "antigravity", "idlelib", "idlelib.run"} & set(names)
