"""What other studies saw of a study's bars: how many trials its winner is the best of, and how
fresh its hold-out is.

A study that saw part of the bars counts with all of its trials: half of the evidence is enough to
choose by, and deflation grows with the logarithm of the count, so counting too many costs little
and counting too few believes in luck. Only a touch is left out: the studies that saw least, as
long as they saw at most 1 % of the bars together. So many small studies, a symbol each, still
count.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from flatout.evaluation.daily_moves import move_alike
from flatout.evaluation.fingerprint_counts import count_noted_before
from flatout.evaluation.seen_bars import SeenBars, normalise_symbol, share_seen
from flatout.evaluation.trial_registry import HoldOutLook, StudyEntry, StudyRecord, read_records

TOUCH = 0.01  # share of the judged bars that may be seen without counting


class OverlappingStudy(NamedTuple):
    """Another study that saw some of the bars which judge this one."""

    record: StudyRecord
    share: float  # of this study's judged bars, that it saw
    counts: bool


class SealedBefore(NamedTuple):
    """What happened to bars of a hold-out before it was opened for its own study."""

    opened: float  # share of them that was in an opened hold-out
    openers: int  # studies
    last: datetime | None  # opening of these
    judged: float  # share of them that judged trials of other studies
    judges: int  # studies


@dataclass(frozen=True)
class OtherStudies:
    """A study among all others of a registry."""

    own: int  # trials
    overlapping: tuple[OverlappingStudy, ...]  # that who saw most comes first
    judged_share: float  # of the judged bars, that any of the counted others saw
    noted_before: int  # trials that earlier versions noted for exactly these bars
    sealed: SealedBefore | None  # of the hold-out; None without one

    @property
    def counted(self) -> list[StudyRecord]:
        """The others whose trials count."""
        return [other.record for other in self.overlapping if other.counts]

    @property
    def trials_of_others(self) -> int:
        """How many trials of other studies the winner must be deflated by."""
        return sum(record.trials for record in self.counted) + self.noted_before

    @property
    def trials_ever(self) -> int:
        """How many trials were ever started on these bars, or on part of them."""
        return self.own + self.trials_of_others


def find_other_studies(entry: StudyEntry) -> OtherStudies:
    """Look for a study's bars in the records of all others of its registry."""
    records = read_records(entry.registry)
    own = next((record for record in records if record.id == entry.record.id), entry.record)
    strangers = [
        rename_alike(record, own) for record in records if record.id != own.id and record.trials
    ]
    overlapping = weigh_overlaps(own.judged_bars, strangers)
    known = {record.counted_as for record in records if record.fingerprint == own.fingerprint}
    noted_before = count_noted_before(
        own.fingerprint, entry.registry, {folder for folder in known if folder}
    )
    seen = (bars for other in overlapping if other.counts for bars in other.record.list_seen())
    return OtherStudies(
        own=own.trials,
        overlapping=overlapping,
        judged_share=1.0 if noted_before else share_seen(own.judged_bars, seen),
        noted_before=noted_before,
        sealed=look_at_hold_out(own, strangers),
    )


def rename_alike(record: StudyRecord, own: StudyRecord) -> StudyRecord:
    """A study's record with our names for the symbols that it has under others: whatever moved
    alike day by day is one market.
    """
    known = own.judged_bars.names
    others = [symbol for symbol in own.daily_moves if symbol not in record.symbols]

    def name(symbol: str) -> str:
        moves = record.daily_moves.get(symbol)
        if moves is None or normalise_symbol(symbol) in known:
            return symbol
        return next((our for our in others if move_alike(moves, own.daily_moves[our])), symbol)

    return replace(record, symbols=tuple(name(symbol) for symbol in record.symbols))


def weigh_overlaps(
    judged: SeenBars, strangers: Iterable[StudyRecord]
) -> tuple[OverlappingStudy, ...]:
    """The studies that saw any of these bars, and whether they count."""
    shares = [(share_seen(judged, record.list_seen()), record) for record in strangers]
    ascending = sorted(
        (pair for pair in shares if pair[0] > 0), key=lambda pair: (pair[0], pair[1].trials)
    )
    found, together = [], 0.0
    for share, record in ascending:
        together += share
        found.append(OverlappingStudy(record, share, counts=together > TOUCH))
    return tuple(reversed(found))


def look_at_hold_out(own: StudyRecord, strangers: Sequence[StudyRecord]) -> SealedBefore | None:
    """What was known of a hold-out before it was opened for the study's winner of today."""
    sealed = own.sealed_bars
    if sealed is None:
        return None
    looks = list_looks(own, sealed, strangers)
    judges = [
        record.judged_bars for record in strangers if share_seen(sealed, [record.judged_bars])
    ]
    return SealedBefore(
        opened=share_seen(sealed, (bars for bars, _ in looks)),
        openers=len(looks),
        last=max((look.time for _, look in looks), default=None),
        judged=share_seen(sealed, judges),
        judges=len(judges),
    )


def list_looks(
    own: StudyRecord, sealed: SeenBars, strangers: Sequence[StudyRecord]
) -> list[tuple[SeenBars, HoldOutLook]]:
    """Each study that opened some of these bars before, with its last look at them. The study
    itself is one if it had another winner before; its own winner, asked again after a kill, is told
    nothing new.
    """
    today = own.openings[-1].what if own.openings else None
    opened = min((look.time for look in own.openings if look.what == today), default=None)
    found = []
    for record in (own, *strangers):
        earlier = [
            look
            for look in record.openings
            if (opened is None or look.time <= opened)
            and not (record.id == own.id and look.what == today)
        ]
        bars = record.sealed_bars
        if earlier and bars and share_seen(sealed, [bars]):
            found.append((bars, max(earlier, key=lambda look: look.time)))
    return found
