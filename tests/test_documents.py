"""Documents say what is there: links, paths, names of modules, commands of make, versions."""

import os
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

import flatout

ROOT = Path(__file__).resolve().parents[1]
NOT_OURS = {"runs", "dist", "build", "node_modules"}  # beside all hidden folders but .github
# where a path in a document may begin
ROOMS = [
    ROOT,
    ROOT / "src",
    ROOT / "src" / "flatout",
    ROOT / "packages" / "flatout-crawl" / "src",
    ROOT / "packages" / "flatout-crawl" / "src" / "flatout_crawl",
    ROOT / "tests",
]
FENCE = re.compile(r"^(```+).*?^\1", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)|\b(?:href|src|srcset)=\"([^\"]+)\"")
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|//")  # an address of its own
SOURCE_FILE = re.compile(r"(?<![\w/.<*-])((?:[\w.-]+/)*\w[\w-]*\.py)\b")
FOLDER = re.compile(r"(?:src|tests|packages|docs)(?:/[\w.-]+)*/?")
MODULE = re.compile(r"(?<![\w./-])(flatout(?:_crawl)?(?:\.\w+)+)")
IDENTIFIER = re.compile(r"[A-Za-z_]\w+")
# snake_case, CamelCase or CAPITALS: what only code is called
OWN_NAME = re.compile(r"[a-z]\w*_\w+|[A-Z][a-z]\w*[A-Z]\w*|[A-Z]{2}\w+")
NO_MODULES = {"flatout.toml", "flatout.commands"}  # a file, and a group of entry points
OF_OTHERS = {"obs_tensor"}  # names that other libraries have, and we do not
EXAMPLES = {"numpy.py"}  # files that somebody else might leave somewhere
MODULE_BY_PATH = re.compile(r"(?<![\w/.-])((?:\w+/)+\w+)\.([A-Za-z_]\w*)")
MAKE = re.compile(r"\bmake ([a-z][a-z-]*)")
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
YAML_FILES = [
    ROOT / "CITATION.cff",
    ROOT / ".pre-commit-config.yaml",
    *sorted((ROOT / ".github").rglob("*.yml")),
]


def documents() -> list[Path]:
    """All Markdown files of the checkout; virtualenvs and caches are not walked through."""
    found = []
    for place, folders, files in os.walk(ROOT):
        folders[:] = [
            name
            for name in folders
            if name == ".github" or not (name in NOT_OURS or name.startswith("."))
        ]
        found += [Path(place, name) for name in files if name.endswith(".md")]
    return sorted(found)


DOCUMENTS = documents()
# The changelog also names what is gone.
PRESENT = [path for path in DOCUMENTS if path.name != "CHANGELOG.md"]


def name_of(path: Path) -> str:
    """A file as test ids show it."""
    return path.relative_to(ROOT).as_posix()


@cache
def spans(path: Path) -> tuple[str, ...]:
    """What stands in backticks, outside of blocks of code."""
    return tuple(SPAN.findall(FENCE.sub("", path.read_text(encoding="utf-8"))))


@cache
def anchors(path: Path) -> frozenset[str]:
    """The anchors that a page's headings get where it is shown."""
    found: list[str] = []
    for heading in re.findall(
        r"^#+ +(.+?) *#*$", FENCE.sub("", path.read_text(encoding="utf-8")), re.MULTILINE
    ):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        again = sum(re.fullmatch(re.escape(slug) + r"(-\d+)?", other) is not None
                    for other in found)  # fmt: skip
        found.append(f"{slug}-{again}" if again else slug)
    return frozenset(found)


def in_some_room(path: str) -> bool:
    """Whether a path of the documents leads to a file or a folder."""
    return any((room / path).exists() for room in ROOMS)


@cache
def file_names() -> frozenset[str]:
    """Names of all Python files of ours."""
    folders = (ROOT / "src", ROOT / "packages", ROOT / "tests")
    found = {path.name for folder in folders for path in folder.rglob("*.py")}
    return frozenset(found | {path.name for path in ROOT.glob("*.py")})


def source_of(module: list[str]) -> Path | None:
    """The file of a module, the `__init__.py` of a package."""
    for room in ROOMS:
        place = room.joinpath(*module)
        for path in (place.with_suffix(".py"), place / "__init__.py"):
            if path.is_file():
                return path
    return None


def is_defined(name: str, source: Path) -> bool:
    """Whether a module has a name: its own, an imported one or a part of the package."""
    if (source.parent / name).is_dir() or (source.parent / f"{name}.py").is_file():
        return True
    text = source.read_text(encoding="utf-8")
    return re.search(rf"^\s*(?:def|class|async def) {name}\b|^{name}\b|\b{name},?$|\"{name}\"",
                     text, re.MULTILINE) is not None  # fmt: skip


def dotted_faults(dotted: str) -> Iterator[str]:
    """What is wrong with `flatout.room.module.name`."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        source = source_of(parts[:length])
        if source is None:
            continue
        if length < len(parts) and not is_defined(parts[length], source):
            yield f"{dotted}: {name_of(source)} has no {parts[length]}"
        return
    yield f"{dotted}: there is no such module"


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_links_lead_somewhere(path: Path) -> None:
    text = SPAN.sub("", FENCE.sub("", path.read_text(encoding="utf-8")))
    dead = []
    for link in (one or other for one, other in LINK.findall(text)):
        if ELSEWHERE.match(link):
            continue
        place, _, anchor = link.partition("#")
        target = (path.parent / place).resolve() if place else path
        is_page = target.suffix == ".md" and target.is_file()
        if not target.exists() or (anchor and is_page and anchor not in anchors(target)):
            dead.append(link)
    assert not dead, f"{name_of(path)} links to what is not there: {dead}"


@pytest.mark.parametrize("path", PRESENT, ids=name_of)
def test_paths_exist(path: Path) -> None:
    dead = []
    for span in spans(path):
        for file in SOURCE_FILE.findall(span):
            known = in_some_room(file) if "/" in file else file in file_names() | EXAMPLES
            if not known:
                dead.append(file)
        if FOLDER.fullmatch(span) and not in_some_room(span):
            dead.append(span)
    assert not dead, f"{name_of(path)} names files that are not there: {dead}"


@pytest.mark.parametrize("path", PRESENT, ids=name_of)
def test_modules_and_their_names_exist(path: Path) -> None:
    faults = []
    for span in spans(path):
        for dotted in set(MODULE.findall(span)) - NO_MODULES:
            faults += dotted_faults(dotted)
        for module, name in MODULE_BY_PATH.findall(span):
            source = source_of(module.split("/"))
            if source is not None and name != "py" and not is_defined(name, source):
                faults.append(f"{module}.{name}")
            room = module.split("/")[0]
            if source is None and name[0].isupper() and in_some_room(room):
                faults.append(f"{module}.{name}")
    assert not faults, f"{name_of(path)} names what is not there: {faults}"


@cache
def identifiers() -> frozenset[str]:
    """Every word of our sources and tests."""
    found: set[str] = set()
    for folder in (ROOT / "src", ROOT / "packages", ROOT / "tests"):
        for path in folder.rglob("*.py"):
            if path != Path(__file__):
                found.update(IDENTIFIER.findall(path.read_text(encoding="utf-8")))
    return frozenset(found)


@pytest.mark.parametrize("path", PRESENT, ids=name_of)
def test_names_in_code_style_are_used_somewhere(path: Path) -> None:
    """Of bare names, without a module: a renamed function leaves its old name in no document."""
    named = {span for span in spans(path) if OWN_NAME.fullmatch(span)}
    unknown = sorted(named - identifiers() - OF_OTHERS)
    assert not unknown, f"{name_of(path)} names what no source has: {unknown}"


@cache
def targets() -> frozenset[str]:
    """What make can be asked for."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return frozenset(re.findall(r"^([a-z][\w-]*):", text, re.MULTILINE))


@pytest.mark.parametrize("path", [*DOCUMENTS, *YAML_FILES], ids=name_of)
def test_make_knows_its_targets(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    commands = [*SPAN.findall(text), *(match.group() for match in FENCE.finditer(text))]
    if path.suffix != ".md":
        commands = re.findall(r"run: (.*)", text)
    asked = {target for command in commands for target in MAKE.findall(command)}
    assert asked <= targets(), f"{name_of(path)}: {sorted(asked - targets())}"


def test_the_makefile_was_read() -> None:
    assert {"test", "check", "style", "test-oldest"} <= targets()


@cache
def project() -> Any:
    """The distribution's own description."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.mark.parametrize("path", YAML_FILES, ids=name_of)
def test_yaml_files_are_yaml(path: Path) -> None:
    assert isinstance(yaml.safe_load(path.read_text(encoding="utf-8")), dict)


def test_the_citation_is_complete_and_of_this_version() -> None:
    found = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert found["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= set(found)
    assert found["version"] == project()["version"]
    assert found["license"] == project()["license"]


def test_the_changelog_begins_with_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    first = re.search(r"^## \[([^\]]+)\]", text, re.MULTILINE)
    assert first is not None
    assert first[1] == project()["version"]


def test_both_distributions_have_one_version() -> None:
    path = ROOT / "packages" / "flatout-crawl" / "pyproject.toml"
    other = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
    assert other["version"] == project()["version"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=name_of)
def test_no_job_runs_for_ever(path: Path) -> None:
    jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
    assert all(job["timeout-minutes"] <= 120 for job in jobs.values())


def test_every_promised_python_is_tried() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    tried = jobs["jobs"]["tests"]["strategy"]["matrix"]["python"]
    promised = [
        line.rpartition(" ")[2]
        for line in project()["classifiers"]
        if re.search(r":: 3\.\d+$", line)
    ]
    assert tried == promised


def test_what_moved_is_gone_and_where_it_went_is_there() -> None:
    """The changelog's table for importers."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(flatout\.[\w.]+)` \| (.+) \|$", text, re.MULTILINE)
    assert len(rows) > 50
    for old, now in rows:
        source = source_of(old.split("."))
        assert source is None or source.name == "__init__.py", f"{old} is still there"
        for dotted in MODULE.findall(now):
            assert source_of(dotted.split(".")), f"{old}: there is no {dotted}"


def test_the_house_has_all_rooms() -> None:
    """README shows every folder and module at the top of the source."""
    [house] = [
        block.group()
        for block in FENCE.finditer((ROOT / "README.md").read_text(encoding="utf-8"))
        if "src/flatout/\n" in block.group()
    ]
    names = [
        f"{path.name}/" if path.is_dir() else path.name
        for place in (ROOT / "src", ROOT / "src" / "flatout")
        for path in place.iterdir()
        if (path.is_dir() and path.suffix == "") or path.suffix == ".py"
    ]
    missing = [name for name in names if not name.startswith("_") and name not in house]
    assert missing == []


def test_files_that_trainings_and_studies_write_are_said_to_be_of_both() -> None:
    table = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert "| `bars.parquet`, `bars.manifest.json` | training, study |" in table


@pytest.mark.parametrize("function", [flatout.train, flatout.run_study])
def test_the_help_says_when_variables_are_read(function: Any) -> None:
    assert "FLATOUT__ variables" in function.__doc__
