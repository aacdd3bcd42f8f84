"""What a campaign does with a damaged folder: several things one after another, each of which may
refuse.
"""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from damage.one_case import LONG, SilentlyWrong
from flatout.cli.main import main
from flatout.errors import FlatoutError

Step = Callable[[], Any]


def run_command(*words: str | Path) -> str:
    """What a command of flatout prints; its refusals and its accidents come as exceptions."""
    result = CliRunner().invoke(
        main, [str(word) for word in words], catch_exceptions=False, env={"COLUMNS": "200"}
    )
    if result.exit_code not in (0, 1):
        raise AssertionError(f"{words} ended with {result.exit_code}: {result.output}")
    return result.stdout


def run_json(*words: str | Path) -> Any:
    """The same for a command that prints JSON."""
    return json.loads(run_command(*words, "--json"))


def take_steps(steps: Mapping[str, Step], honest: Mapping[str, Any]) -> str:
    """Take all steps, whatever became of those before; "refused" if any was. A step that is in
    `honest` must have that outcome unless it refuses.
    """
    refused = 0
    for name, step in steps.items():
        try:
            found = step()
        except FlatoutError as error:
            refused += 1
            if len(str(error)) > LONG:
                raise AssertionError(f"{name} refuses with {len(str(error))} characters") from None
            continue
        if name in honest and found != honest[name]:
            raise SilentlyWrong(
                f"{name}: {str(found)[:1500]} instead of {str(honest[name])[:1500]}"
            )
    return "refused" if refused else "read"


def unchanged(folder: Path, original: Path, *names: str) -> bool:
    """Whether some files are as they were."""
    return all(content_of(folder / name) == content_of(original / name) for name in names)


def content_of(path: Path) -> bytes | None:
    """The bytes of an ordinary file; None for anything else."""
    if (
        path.is_symlink()
        or any(parent.is_symlink() for parent in path.parents)
        or not path.is_file()
    ):
        return None
    return path.read_bytes() if path.stat().st_size < 1 << 30 else b""


def without_syncing() -> None:
    """Tell the disk not to wait: a campaign writes thousands of files."""
    os.fsync = lambda file: None
