"""What a study was begun with, as `about.json` and `settings.json` of its folder say; both may be
somebody else's.
"""

import os
from pathlib import Path
from typing import Annotated, Literal, NotRequired

from pydantic import ConfigDict, Field
from typing_extensions import TypedDict

from flatout.errors import RunError
from flatout.evaluation.trial_registry import StudyId
from flatout.file_names import file_name
from flatout.foreign import JsonTable, read_json
from flatout.settings.fields import AtLeastOne
from flatout.settings.loading import Resolved
from flatout.settings.tables import Settings

ABOUT, SETTINGS = "about.json", "settings.json"
NO_WEIGHTS = (
    "an earlier version of flatout began this study and did not keep the weights by which this one "
    "tells skill from direction; start it under another name (`flatout report` shows what it "
    "came to, if it came to an end)"
)
CURE = "restore it from a copy, or start the study under another name"
Fingerprint = Annotated[str, Field(pattern="^[0-9a-f]{8,64}$")]


class RequestFacts(TypedDict):
    """Which bars a study is about."""

    name: Annotated[str, Field(min_length=1)]
    bars: str | None
    symbols: tuple[str, ...] | None
    bar: str | None


class AboutStudy(TypedDict):
    """What `about.json` of a study says."""

    __pydantic_config__ = ConfigDict(extra="ignore")  # type: ignore[misc]
    verb: Literal["search"]
    request: RequestFacts
    fingerprint: Fingerprint
    n_envs: AtLeastOne
    index_only: NotRequired[bool]
    engine: NotRequired[Literal["jax", "torch"]]
    storage: NotRequired[str | None]
    id: NotRequired[StudyId]  # in the registry of trials
    # how an earlier version, which gave no ids, called the study there
    counted_as: NotRequired[str | None]
    # in how many parts of a block trials keep the weights that tell skill from direction
    weights: NotRequired[int]


class AboutRun(TypedDict):
    """What every run's `about.json` says."""

    verb: str


def study_path(out: Path, name: str) -> Path:
    """The folder of the study of this name. Before names were made safe, it was called as the study
    is.
    """
    if Path(name).name == name and os.path.lexists(out / name / ABOUT):
        return out / name
    return out / file_name(name)


def is_begun(folder: Path) -> bool:
    """Whether a study was begun there."""
    return os.path.lexists(folder / SETTINGS)  # written last


def read_run(folder: Path) -> tuple[Settings, JsonTable]:
    """What a study was begun with."""
    about = read_json(folder / ABOUT, AboutStudy, RunError, CURE)
    resolved = read_json(folder / SETTINGS, Resolved, RunError, CURE)
    return resolved.settings, JsonTable(about)


def made_by_search(folder: Path) -> bool:
    """Whether `flatout search` made this folder."""
    return read_json(folder / ABOUT, AboutRun, RunError, CURE)["verb"] == "search"
