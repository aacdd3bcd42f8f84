"""Real documentation as sites: folders of HTML files, and the standard library as pydoc shows it.

A `Tree` answers like a made-up site does, from files; `record_tree` walks it by its links into an
archive, so that it is learned on like any site that was crawled. Nothing is downloaded.
"""

import contextlib
import io
import mimetypes
import pkgutil
import pydoc
import subprocess
import sys
import warnings
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol
from urllib.parse import quote, unquote, urlsplit

from flatout.children import own_program
from flatout.errors import RunError, SettingsError
from flatout_crawl.net.fetching import Answer
from flatout_crawl.net.scope import canonical
from flatout_crawl.reading.parsing import Resolver, read_page
from flatout_crawl.sites.site import SiteReply

DOCS_HOST = "docs.lab"
INDEX = "index.html"
PAGES = (".html", ".htm", ".xhtml")
PYDOC_DONE = "complete.txt"
MOST_BYTES = 16 << 20  # of one file
# Importing these opens windows or browsers, prints poems, or starts what was not asked for.
NOT_SHOWN = frozenset({"antigravity", "this", "idlelib", "turtledemo", "test", "tests", "lib2to3"})
ALIKE = frozenset({"encodings", "pydoc_data"})  # packages of which one page is enough


class Keeps(Protocol):
    """What pages are recorded into: `archive.Archive`."""

    def put(self, answer: Answer, asked_url: str) -> None:
        """Keep an answer under the URL that was asked for."""
        ...


class Tree:
    """A folder of HTML files as a site, `http://docs.lab/NAME/...`. Files outside the folder are
    never read.
    """

    def __init__(
        self, folder: Path, name: str = "", *, host: str = DOCS_HOST, start: str = ""
    ) -> None:
        self.folder = Path(folder).resolve()
        if not self.folder.is_dir():
            raise SettingsError(
                f"{folder}: there is no such folder; give one that holds HTML files"
            )
        self.name = name or self.folder.name
        self.origin, self.prefix = f"http://{host}", f"/{quote(self.name)}/"
        first = start or self.first_page()
        self.seed_url = f"{self.origin}{self.prefix}{quote(first)}"

    def first_page(self) -> str:
        """index.html, or else the first page by name."""
        if (self.folder / INDEX).is_file():
            return INDEX
        for path in self.files():
            return path
        raise SettingsError(
            f"{self.folder}: holds no HTML files ({', '.join(PAGES)}); give a folder that does"
        )

    def files(self) -> Iterator[str]:
        """All pages, relative to the folder, in order of their names."""
        found = (
            path
            for path in self.folder.rglob("*")
            if path.suffix.lower() in PAGES and path.is_file()
        )
        return iter(sorted(path.relative_to(self.folder).as_posix() for path in found))

    def url(self, file: str) -> str:
        """The URL under which a file is found."""
        return f"{self.origin}{self.prefix}{quote(file)}"

    def answer(self, path: str) -> SiteReply:
        """The file that a path or URL stands for."""
        plain = unquote(urlsplit(path).path)
        if plain == "/robots.txt":
            return SiteReply(200, {"content-type": "text/plain"}, b"User-agent: *\nDisallow:\n")
        if plain in ("/", self.prefix.rstrip("/")):
            return SiteReply(
                301, {"location": urlsplit(self.seed_url).path, "content-type": "text/html"}, b""
            )
        file = self.file(plain)
        if file is None:
            return SiteReply(404, {"content-type": "text/html"}, b"<h1>Not found</h1>")
        if file.stat().st_size > MOST_BYTES:
            return SiteReply(413, {"content-type": "text/html"}, b"<h1>Too large</h1>")
        kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        return SiteReply(200, {"content-type": kind}, file.read_bytes())

    def file(self, plain: str) -> Path | None:
        """The file of a path; None where there is none within the folder."""
        prefix = unquote(self.prefix)
        if not plain.startswith(prefix) or "\0" in plain:
            return None
        found = (self.folder / plain.removeprefix(prefix)).resolve()
        if found.is_dir():
            found = found / INDEX
        return found if found.is_relative_to(self.folder) and found.is_file() else None


def record_tree(tree: Tree, archive: Keeps, limit: int = 1_000) -> int:
    """Record pages into an archive, breadth-first from the first page by the links that are within
    the tree; how many were recorded. Links to what is not there are recorded too, as what they are.
    """
    resolve, queue, seen = Resolver(canonical), deque([tree.seed_url]), {tree.seed_url}
    inside = f"{tree.origin}{tree.prefix}"
    count = 0
    while queue and count < limit:
        url = queue.popleft()
        status, headers, body = tree.answer(url)
        kind = headers["content-type"].partition(";")[0]
        if status == 200 and kind not in ("text/html", "application/xhtml+xml"):
            continue
        answer = Answer(url, status, body if status == 200 else b"", kind)
        archive.put(answer, url)
        count += 1
        links = read_page(answer, resolve).links if answer.is_page else ()
        new = [link.url for link in links if link.url.startswith(inside) and link.url not in seen]
        seen.update(new)
        queue.extend(new)
    return count


def pydoc_site(folder: Path, limit: int = 400) -> Tree:
    """The standard library's documentation as pydoc writes it, made once into this folder."""
    folder = Path(folder)
    done = folder / PYDOC_DONE
    if not done.is_file() or done.read_text() != pydoc_version(limit):
        folder.mkdir(parents=True, exist_ok=True)
        # Hundreds of modules are imported for it: not in this process.
        command = own_program(
            "flatout_crawl.sites.documentation", str(folder.resolve()), str(limit)
        )
        ended = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        if ended.returncode:
            raise RunError(
                f"{folder}: pydoc's pages could not be written there: {ended.stderr.strip()[-500:]}"
            )
        done.write_text(pydoc_version(limit))  # last: a folder without it is made again
    return Tree(folder, "pydoc")


def pydoc_version(limit: int) -> str:
    """What the folder was made from."""
    return f"{sys.version}\n{limit}\n"


def library_modules() -> list[str]:
    """Names of the standard library's modules and the modules in its packages."""
    tops = [
        name
        for name in sorted(sys.stdlib_module_names)
        if not name.startswith("_") and name not in NOT_SHOWN
    ]
    names = []
    for name in tops:
        names.append(name)
        folder = Path(pydoc.__file__).parent / name
        if folder.is_dir() and name not in ALIKE:
            within = (module.name for module in pkgutil.iter_modules([str(folder)]))
            names += [
                f"{name}.{module}"
                for module in within
                if not module.startswith("_") and module not in NOT_SHOWN
            ]
    return names


def write_pydoc(folder: Path, limit: int) -> None:
    """One page per module that can be imported here, and the page that leads to them."""
    written: list[str] = []
    for name in library_modules():
        if len(written) >= limit:
            break
        text = pydoc_page(name)
        if text:
            (folder / f"{name}.html").write_text(text, encoding="utf-8", errors="replace")
            written.append(name)
    (folder / INDEX).write_bytes(pydoc_index(written))


def pydoc_page(name: str) -> str:
    """pydoc's page of a module; "" if the module is not for this system."""
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")  # old modules say that they are old
            found, _ = pydoc.resolve(name) or (None, "")
            return (
                pydoc.html.page(pydoc.describe(found), pydoc.html.document(found, name))
                if found
                else ""
            )
    except (ImportError, pydoc.ErrorDuringImport):
        return ""


def pydoc_index(names: list[str]) -> bytes:
    """The page that leads to all others."""
    items = "\n".join(
        f'<li><a href="{name}.html">{name}</a></li>' for name in names if "." not in name
    )
    head = (
        '<!doctype html><html><head><meta charset="utf-8"><title>Python '
        "library</title></head><body><main>"
    )
    return f"{head}<h1>Python library</h1><ul>\n{items}\n</ul></main></body></html>\n".encode()


if __name__ == "__main__":
    write_pydoc(Path(sys.argv[1]), int(sys.argv[2]))
