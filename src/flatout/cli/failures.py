"""What the commands say when something goes wrong: one sentence, whatever it was."""

import errno
import os
import re
import sys
import tempfile
import traceback

from flatout.runs import installed_version
from flatout.terminal import plain

CURES = {
    errno.ENOSPC: "free some space, or write to another disk (--out)",
    errno.EDQUOT: "free some space, or write to another disk (--out)",
    errno.EROFS: "write to a folder that is not read-only (--out)",
    errno.EACCES: "check the permissions, or give another path",
    errno.EPERM: "check the permissions, or give another path",
    errno.ENAMETOOLONG: "give a shorter name",
    errno.EMFILE: "allow more open files: ulimit -n 4096",
    errno.ENFILE: "close other programs: the system has no more open files to give",
    errno.ELOOP: "the path is a circle of links: give the real one",
}
REPORT = "README.md says where, SECURITY.md what not to report in public"
# Arguments of the functions behind the commands, as their errors write them: `hold_out` in Python
# is --hold-out in the shell.
ARGUMENTS = (
    *("bars", "device", "engine", "hold_out", "name", "out", "resume", "storage"),
    *("symbols", "bar"),
    *("since", "until", "start", "times", "tech", "indicators", "tech_order"),
)


def describe_refusal(error: OSError) -> str:
    """What the system refused, of which file, and what to do."""
    where = f"{error.filename}: " if error.filename is not None else ""
    what = error.strerror or str(error) or type(error).__name__
    return f"{where}{what}; {CURES.get(error.errno or 0, 'check the path and try again')}"


def describe_surprise(error: BaseException, path: str) -> str:
    """What nobody expected, and where the traceback is."""
    last = traceback.format_exception_only(error)[-1].strip()
    return (
        f"flatout failed in a way that nobody expected: {last[:300]}. The traceback is in {path}; "
        f"please report it with that file ({REPORT}). --debug shows it"
    )


def keep_traceback(error: BaseException) -> str:
    """Write the traceback into a new file of this user alone."""
    lines = [f"flatout {installed_version('flatout')}, Python {sys.version}\n", f"{sys.argv}\n\n"]
    handle, path = tempfile.mkstemp(prefix="flatout-traceback-", suffix=".txt")
    with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.writelines([*lines, *traceback.format_exception(error)])
    return path


def describe_failure(error: BaseException) -> str:
    """One sentence for any exception."""
    if isinstance(error, OSError):
        return describe_refusal(error)
    if isinstance(error, MemoryError):
        said = str(error)
        return (
            f"out of memory{f': {said}' if said else ''}; ask for less at once, `--plan` "
            f"forecasts what fits"
        )
    try:
        path = keep_traceback(error)
    except OSError:
        path = "no file, as none could be written"
    return describe_surprise(error, path)


def name_options(sentence: str) -> str:
    """An error's sentence as the shell's user reads it: arguments become options.

    >>> name_options("too few bars: give another `hold_out`, or ask `flatout doctor`")
    'too few bars: give another --hold-out, or ask `flatout doctor`'
    """
    return re.sub(
        rf"`({'|'.join(ARGUMENTS)})`",
        lambda found: f"--{found[1].replace('_', '-')}",
        sentence,
    )


def print_error(sentence: str) -> None:
    """To standard error; a terminal that cannot show a letter shows another."""
    from rich.console import Console

    Console(stderr=True).print(
        f"[bold red]error:[/] {plain(name_options(sentence))}", highlight=False, soft_wrap=True
    )


def make_streams_safe() -> None:
    """Letters that an encoding does not have become question marks instead of an exception."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
