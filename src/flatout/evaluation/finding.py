"""What one experiment of an audit found."""

from typing import NamedTuple


class Finding(NamedTuple):
    """One thing that was tried, whether it went well, and the sentence that says so."""

    name: str
    passed: bool
    sentence: str
    details: tuple[str, ...] = ()
