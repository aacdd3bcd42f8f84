"""Which lane of which worker holds which split and seed of which trial.

A study has two batches of lanes. While one of them trains, the other's results go to Optuna and its
next trials are asked for: the devices never wait for the search. Each batch has places for some
trials; a trial's lanes are dealt to the workers one by one, so that every worker has its share of
each trial.
"""

from typing import NamedTuple

LANE_BATCHES = 2
# of a batch on a CPU core: enough to make judging cheap, few enough to see results often
USUAL_LANES = 12


class LaneSlot(NamedTuple):
    """What a lane works on: a split and a seed of the trial in a place of its batch."""

    place: int
    split: int
    seed: int


class WorkerLane(NamedTuple):
    """Where a lane is: a worker, and the lane's number in it."""

    worker: int
    lane: int


class Layout(NamedTuple):
    """The lanes of one batch."""

    places: int  # trials at once
    splits: int
    seeds: int
    workers: int

    @property
    def per_trial(self) -> int:
        """How many lanes one trial takes."""
        return self.splits * self.seeds

    @property
    def lanes(self) -> int:
        """How many lanes one worker has; the last may stay empty."""
        return -(-self.places * self.per_trial // self.workers)

    def slot_of(self, worker: int, lane: int) -> LaneSlot | None:
        """What a lane works on, None for one too many."""
        place, rest = divmod(lane * self.workers + worker, self.per_trial)
        return LaneSlot(place, *divmod(rest, self.seeds)) if place < self.places else None

    def lane_of(self, slot: LaneSlot) -> WorkerLane:
        """Which lane works on a split and seed of the trial in a place."""
        number = slot.place * self.per_trial + slot.split * self.seeds + slot.seed
        lane, worker = divmod(number, self.workers)
        return WorkerLane(worker, lane)


def make_layout(splits: int, seeds: int, workers: int, trials: int, batch: int | None) -> Layout:
    """Places for as many trials at once as `batch` asks for, else for as many as fill the
    workers.
    """
    places = batch or max(1, -(-USUAL_LANES * workers // (splits * seeds)))
    return Layout(min(places, -(-trials // LANE_BATCHES)), splits, seeds, workers)
