"""Which lane of which worker holds which split and seed of which trial.

A study has two crews. While one of them trains, the other's results are told to Optuna and its next
trials are asked for: the devices never wait for the search. Each crew has places for some trials; a
trial's lanes are dealt to the workers one by one, so that every worker has its share of each trial.
"""

from typing import NamedTuple

CREWS = 2
# of a crew on a CPU core: enough to make judging cheap, few enough to look at results often
USUAL_LANES = 12


class Seat(NamedTuple):
    """What a lane works on."""

    place: int
    split: int
    seed: int


class Layout(NamedTuple):
    """The lanes of one crew."""

    places: int  # trials at once
    splits: int
    seeds: int
    workers: int

    @property
    def per_trial(self) -> int:
        """Lanes of one trial."""
        return self.splits * self.seeds

    @property
    def lanes(self) -> int:
        """Lanes of one worker; the last may stay empty."""
        return -(-self.places * self.per_trial // self.workers)

    def seat(self, worker: int, lane: int) -> Seat | None:
        """What a lane works on, None for one too many."""
        place, rest = divmod(lane * self.workers + worker, self.per_trial)
        return Seat(place, *divmod(rest, self.seeds)) if place < self.places else None

    def home(self, seat: Seat) -> tuple[int, int]:
        """Worker and lane of a seat."""
        lane, worker = divmod(
            seat.place * self.per_trial + seat.split * self.seeds + seat.seed, self.workers
        )
        return worker, lane


def make_layout(splits: int, seeds: int, workers: int, trials: int, batch: int | None) -> Layout:
    """As many trials at once as asked for, else as fill the workers."""
    places = batch or max(1, -(-USUAL_LANES * workers // (splits * seeds)))
    return Layout(min(places, -(-trials // CREWS)), splits, seeds, workers)
