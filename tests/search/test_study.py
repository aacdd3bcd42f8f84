"""The study as a machine, with workers that train nobody: what it asks, tells and orders, and that
it may be killed before any of its writes.
"""

import json
import os
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from fake_workers import Lane, Played, earned, fakes, layout_of, made_study, play
from interruptions import Killed, writes_to
from small_studies import table

from flatout.errors import RunError
from flatout.learners.metrics import metric_names
from flatout.search.run import PreparedStudy, open_study_folder
from flatout.search.scheduler import STOP, Scheduler
from flatout.search.storage import LEASE, open_storage, open_study
from flatout.search.study import Study
from flatout.search.study_orders import make_orders
from flatout.search.study_state import read_state
from flatout.search.trial_files import read_trial, trial_numbers

ENDED = {"COMPLETE", "PRUNED", "FAIL"}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No waiting for the disk, and no chatter."""
    monkeypatch.setattr(os, "fsync", lambda file: None)
    optuna.logging.set_verbosity(optuna.logging.WARNING)


@cache
def made(trials: int = 6, **search: Any) -> PreparedStudy:
    return made_study(search={"trials": trials, **search})


def files(folder: Path) -> dict[str, bytes]:
    """The trials' results by name."""
    return {path.name: path.read_bytes() for path in sorted((folder / "trials").iterdir())}


def check_whole(folder: Path, played: Played, trials: int) -> None:
    """Every trial was asked for once, ended, and left its results; nothing else lies about."""
    assert [row["number"] for row in played.table] == list(range(trials))
    assert {row["state"] for row in played.table} <= ENDED
    assert played.study.done
    assert trial_numbers(folder) == list(range(trials))
    assert sorted(played.study.state.finished) == list(range(trials))
    assert not list(folder.rglob(".*"))
    check_rows(folder, played)


def read_rows(folder: Path) -> list[dict[str, Any]]:
    """What stands in the study's `metrics.jsonl`, without the speed."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{**json.loads(line), "steps_per_s": None} for line in lines]


def check_rows(folder: Path, played: Played) -> None:
    """Each lane of each trial has one row for each rung that it came to."""
    market, layout = played.study.market, played.study.layout
    expected = [
        (f"trial-{number}/split-{split:02d}/seed-{seed}", rung)
        for number in trial_numbers(folder)
        for split in range(layout.splits)
        for seed in range(layout.seeds)
        for rung in market.rungs
        if rung <= read_trial(folder, number).facts["updates"]
    ]
    assert sorted((row["lane"], row["updates"]) for row in read_rows(folder)) == sorted(expected)


def check_same(folder: Path, played: Played, undisturbed: Played) -> None:
    """Nothing tells that a study was disturbed."""
    check_whole(folder, played, len(undisturbed.table))
    assert played.table == undisturbed.table
    assert files(folder) == files(undisturbed.study.folder)
    assert read_rows(folder) == read_rows(undisturbed.study.folder)
    assert played.study.state.finished == undisturbed.study.state.finished


# --- whole studies --------------------------------------------------------------------------------


@pytest.mark.parametrize("trials", [1, 2, 3, 7])
@pytest.mark.parametrize("batch", [1, 2])
def test_every_trial_is_asked_for_once_and_ends(tmp_path: Path, trials: int, batch: int) -> None:
    played = play(tmp_path / "study", made(trials, batch=batch))
    check_whole(tmp_path / "study", played, trials)


def test_equal_studies_have_equal_tables(tmp_path: Path) -> None:
    one, two, other = (
        play(tmp_path / name, made(12, seed=seed)) for name, seed in (("a", 0), ("b", 0), ("c", 1))
    )
    check_same(tmp_path / "b", two, one)
    assert [row["params"] for row in other.table] != [row["params"] for row in one.table]


def test_knobs_are_drawn_independently(tmp_path: Path) -> None:
    played = play(tmp_path / "study", made(8, sampler="random", pruner="none"))
    gamma, reserve = (
        [(row["params"][name] - low) / width for row in played.table]
        for name, low, width in (("train.gamma", 0.88, 0.11), ("market.limits.reserve", 0.05, 0.25))
    )
    assert np.min(np.abs(np.subtract(gamma, reserve))) > 1e-6
    assert np.std(np.subtract(gamma, reserve)) > 0.1


# --- kills ----------------------------------------------------------------------------------------


def check_deaths(tmp_path: Path, study: PreparedStudy, wanted: Callable[[int, str], bool]) -> None:
    """Goes on from where a process killed before each of these writes has left the folder."""
    with writes_to(tmp_path / "study", tmp_path, wanted) as writes:
        undisturbed = play(tmp_path / "study", study)
    assert len(writes.copies) > 15
    for copy in writes.copies:
        check_same(copy, play(copy, study), undisturbed)


@pytest.mark.long
def test_it_may_be_killed_before_its_writes(tmp_path: Path) -> None:
    """Every so many of them; there are about two hundred. Ten trials are drawn at random, then the
    sampler learns.
    """
    check_deaths(tmp_path, made(12), lambda count, what: count % 12 == 5)


@pytest.mark.long
def test_trials_may_be_half_drawn_and_half_decided(tmp_path: Path) -> None:
    """Killed before any parameter is written, and before any state, when pruners have had their
    say.
    """
    study = made(5, pruner="halving", sampler="random")
    check_deaths(tmp_path, study, lambda count, what: what in ("SET_TRIAL_PARAM", "board.json"))


@pytest.mark.long
def test_rows_may_be_half_written(tmp_path: Path) -> None:
    """Killed before any row of the metrics, every second time in the middle of it."""
    check_deaths(tmp_path, made(10, batch=1), lambda count, what: what == "metrics.jsonl")


@pytest.mark.slow
@pytest.mark.parametrize("pruner", ["none", "wilcoxon", "halving"])
@pytest.mark.parametrize("sampler", ["random", "tpe", "cmaes"])
def test_it_may_be_killed_before_any_write(tmp_path: Path, sampler: str, pruner: str) -> None:
    check_deaths(tmp_path, made(14, sampler=sampler, pruner=pruner), lambda count, what: True)


@pytest.mark.parametrize("seed", [0, 1])
def test_it_may_be_killed_again_and_again(tmp_path: Path, seed: int) -> None:
    rng, study = random.Random(seed), made(12)
    undisturbed = play(tmp_path / "undisturbed", study)
    folder, deaths = tmp_path / "0", 0
    while True:
        last = rng.randrange(30)
        kept = tmp_path / f"kept-{deaths}"
        try:
            with writes_to(folder, kept, lambda count, what, last=last: count == last, mortal=True):
                played = play(folder, study)
        except Killed:
            folder, deaths = kept / f"{last:04d}", deaths + 1
        else:
            break
    assert deaths >= 5
    check_same(folder, played, undisturbed)


def until(rounds: int) -> Callable[[Study, Any], None]:
    """Dies after so many rounds."""

    def on_round(study: Study, decisions: Any) -> None:
        if study.state.round >= rounds:
            raise Killed

    return on_round


def interrupted(folder: Path, study: PreparedStudy, rounds: int) -> None:
    """Plays some rounds and dies."""
    with pytest.raises(Killed):
        play(folder, study, on_round=until(rounds))


@pytest.mark.parametrize("rounds", [1, 8])
@pytest.mark.parametrize(
    "changes", [{"workers": 1}, {"workers": 3}, {"places": 1}, {"places": 3, "workers": 1}]
)
def test_other_workers_begin_running_trials_anew_and_lose_none(
    tmp_path: Path, rounds: int, changes: dict[str, int]
) -> None:
    study = made(8)
    interrupted(tmp_path / "study", study, rounds)
    with open_study_folder(study, tmp_path / "study", None) as before:
        known, running = (
            table(before.optuna_study),
            {s.trial for places in before.state.batches for s in places if s},
        )
    played = play(tmp_path / "study", layout_of(study, **changes))
    check_whole(tmp_path / "study", played, 8)
    assert running
    for old, new in zip(known, played.table, strict=False):
        assert old["params"] == new["params"]
        assert old == new or old["number"] in running


def test_lost_checkpoints_cost_the_running_trials_only(tmp_path: Path) -> None:
    study, folder = made(8), tmp_path / "study"
    undisturbed = play(tmp_path / "undisturbed", study)
    interrupted(folder, study, 7)
    before = trial_numbers(folder)
    next((folder / "checkpoints").glob("worker-1-crew-0*")).unlink()
    played = play(folder, study)
    check_whole(folder, played, 8)
    assert before == [0, 1, 2, 3]
    assert played.table[:4] == undisturbed.table[:4]
    assert [row["params"] for row in played.table[:6]] == [
        row["params"] for row in undisturbed.table[:6]
    ]


def test_a_lost_folder_of_checkpoints_is_made_again(tmp_path: Path) -> None:
    """When no trial had got anywhere yet, so that nothing was lost with it."""
    study, folder = made(4), tmp_path / "study"
    folder.mkdir()
    with open_study_folder(study, folder, None) as machine:
        machine.begin()
    (folder / "checkpoints").rmdir()
    check_whole(folder, play(folder, study), 4)


def test_what_was_decided_is_known_to_optuna_before_trials_are_placed_anew(tmp_path: Path) -> None:
    """Killed between deciding and telling, and resumed by other workers."""
    study, found = made(6), []
    with writes_to(
        tmp_path / "study", tmp_path, lambda count, what: what == "SET_TRIAL_STATE_VALUES"
    ) as writes:
        play(tmp_path / "study", study)
    for copy in writes.copies:
        state = read_state(copy)
        ended = [d.trial for d in (state and state.decisions) or () if d and d.state != "going"]
        if ended and not found:
            found = ended
            played = play(copy, layout_of(study, workers=1))
            check_whole(copy, played, 6)
    assert found


def test_a_batch_without_trials_does_not_hold_up_the_other(tmp_path: Path) -> None:
    """Killed or stopped when one batch had nothing more to do, whichever round it was."""
    study = made(3, batch=1)
    undisturbed = play(tmp_path / "undisturbed", study)
    for rounds in range(4, undisturbed.study.state.round):
        folder = tmp_path / f"killed-{rounds}"
        interrupted(folder, study, rounds)
        check_same(folder, play(folder, study), undisturbed)
        folder = tmp_path / f"stopped-{rounds}"
        stopped = play(folder, study, on_round=stopping_at(rounds))
        assert not stopped.study.done or rounds > 6
        (folder / STOP).unlink(missing_ok=True)
        check_same(folder, play(folder, study), undisturbed)


def stopping_at(last: int) -> Callable[[Study, Any], None]:
    """Asks for a stop, as a user does, once a round is over."""

    def on_round(study: Study, decisions: Any) -> None:
        if study.state.round >= last:
            (study.folder / STOP).touch()

    return on_round


# --- growing --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("trials", "batch"), [(4, 2), (5, 2), (4, 1), (1, 1)])
@pytest.mark.parametrize("rounds", [3, None])
def test_a_study_may_grow(tmp_path: Path, trials: int, batch: int, rounds: int | None) -> None:
    """When it is over or in the middle; what has ended stays."""
    study, folder = made(trials, batch=batch), tmp_path / "study"
    if rounds is None:
        play(folder, study)
    else:
        play(folder, study, on_round=stopping_at(rounds))
        (folder / STOP).unlink(missing_ok=True)
    with open_study_folder(study, folder, None) as before:
        known = [row for row in table(before.optuna_study) if row["state"] in ENDED]
    played = play(folder, made(trials + 3, batch=batch))
    check_whole(folder, played, trials + 3)
    assert [
        row for row in played.table if row["number"] in {old["number"] for old in known}
    ] == known


def test_a_grown_study_may_be_killed(tmp_path: Path) -> None:
    first, grown = made(4), made(7)
    play(tmp_path / "study", first)
    with writes_to(tmp_path / "study", tmp_path, lambda count, what: count % 5 == 0) as writes:
        undisturbed = play(tmp_path / "study", grown)
    for copy in writes.copies:
        check_same(copy, play(copy, grown), undisturbed)


# --- decisions ------------------------------------------------------------------------------------


def clear(lane: Lane, blocks: int, bars: int) -> np.ndarray:
    """No luck: the larger the learning rate, the worse, in every lane and at every rung."""
    traces = earned(lane, blocks, bars)
    traces[:2] = -np.log10(lane.learning_rate) * 1e-3 + 1e-4 * np.sin(np.arange(bars))
    return traces


@pytest.mark.parametrize("pruner", ["wilcoxon", "halving", "none"])
def test_pruners_end_what_is_worse(tmp_path: Path, pruner: str) -> None:
    played = play(tmp_path / "study", made(12, pruner=pruner, sampler="random"), clear)
    check_whole(tmp_path / "study", played, 12)
    pruned = [row for row in played.table if row["state"] == "PRUNED"]
    rungs = played.study.market.rungs
    assert rungs == ((4,) if pruner == "none" else (1, 3, 4))
    if pruner == "none":
        assert not pruned
        return
    assert len(pruned) >= 3
    best = min(played.table, key=lambda row: row["params"]["train.learning_rate"])
    assert best["state"] == "COMPLETE"
    for row in pruned:
        facts = read_trial(tmp_path / "study", row["number"]).facts
        assert facts["state"] == "pruned"
        assert facts["updates"] in rungs[:-1]
        others = [
            r
            for r in played.table
            if r["params"]["train.learning_rate"] < row["params"]["train.learning_rate"]
        ]
        assert others  # somebody was better
    for row in (row for row in played.table if row["state"] == "COMPLETE"):
        assert read_trial(tmp_path / "study", row["number"]).facts["updates"] == rungs[-1]


def test_halving_lets_the_better_half_of_each_round_go_on(tmp_path: Path) -> None:
    """Whoever is in which place."""
    decided: list[list[tuple[str, float]]] = []
    play(
        tmp_path / "study", made(4, pruner="halving", sampler="random", batch=2), clear,
        lambda study, decisions: decided.append([(d.state, d.value) for d in decisions]),
    )  # fmt: skip
    first = decided[0]
    assert sorted(state for state, _ in first) == ["going", "pruned"]
    assert max(first, key=lambda x: x[1])[0] == "going"


@pytest.mark.parametrize(("rung", "bad"), [(1, np.nan), (3, np.inf), (4, np.nan), (4, -np.inf)])
def test_a_lane_that_diverges_fails_its_trial_only(tmp_path: Path, rung: int, bad: float) -> None:
    seen: set[float] = set()

    def diverging(lane: Lane, blocks: int, bars: int) -> np.ndarray:
        traces = earned(lane, blocks, bars)
        if (
            lane.updates == rung
            and lane.first_bar < 100
            and (not seen or lane.learning_rate in seen)
        ):
            seen.add(lane.learning_rate)
            traces[0, 0, bars // 2 :] = bad
        return traces

    study = made(5, pruner="halving" if rung < 4 else "none")
    played = play(tmp_path / "study", study, diverging)
    check_whole(tmp_path / "study", played, 5)
    failed = [row for row in played.table if row["state"] == "FAIL"]
    assert len(failed) == 1
    assert np.float32(failed[0]["params"]["train.learning_rate"]) in np.asarray([*seen], np.float32)
    trial = read_trial(tmp_path / "study", failed[0]["number"])
    assert trial.facts["state"] == "failed"
    assert trial.facts["value"] is None
    assert np.isfinite(trial.log_return).all()
    scores = trial.facts["scores"]
    assert [score is None for [score] in scores] == [True, False]  # which split it was can be seen


def test_a_trials_file_holds_what_its_lanes_earned(tmp_path: Path) -> None:
    study = made(3, pruner="none", seeds=2)
    chunks: dict[Any, np.ndarray] = {}

    def noted(lane: Lane, blocks: int, bars: int) -> np.ndarray:
        chunks[lane.seed, lane.learning_rate] = earned(lane, blocks, bars)
        return chunks[lane.seed, lane.learning_rate]

    played = play(tmp_path / "study", study, noted)
    for row in played.table:
        trial = read_trial(tmp_path / "study", row["number"])
        assert trial.facts["params"] == row["params"]
        assert (
            trial.facts["value"]
            == row["values"][0]
            == pytest.approx(np.mean(trial.facts["scores"]))
        )
        for split in range(2):
            for seed in range(2):
                spec = study.market.lane(row["params"], split, seed)
                found = chunks[spec.seed, float(spec.rates.learning_rate)]
                np.testing.assert_array_equal(trial.log_return[split, seed], found[0])
                np.testing.assert_array_equal(trial.turnover[split, seed], np.float32(0.1))


def test_a_row_holds_what_its_lane_reported_and_earned(tmp_path: Path) -> None:
    study = made(2, pruner="none", seeds=2)
    played = play(tmp_path / "study", study)
    rows = {row["lane"]: row for row in read_rows(tmp_path / "study")}
    assert len(rows) == 8
    for number in range(2):
        trial = read_trial(tmp_path / "study", number)
        rate = np.float32(played.table[number]["params"]["train.learning_rate"])
        for split, about in enumerate(study.market.folds.splits):
            for seed in range(2):
                row = rows[f"trial-{number}/split-{split:02d}/seed-{seed}"]
                assert (row["updates"], row["steps"]) == (4, 4 * study.market.program.rollout)
                metrics = dict(zip(row["metrics"], range(len(row["metrics"])), strict=True))
                assert tuple(metrics) == metric_names(study.market.program)
                np.testing.assert_allclose(
                    [*row["metrics"].values()], [4 + rate * k for k in metrics.values()], rtol=1e-6
                )
                scores = row["scores"]
                assert scores["skill_sharpe"] == trial.facts["scores"][split][seed]
                assert scores["length"] == sum(block.length for block in about.test)
                earned_in_all = trial.log_return[split, seed].sum(dtype=np.float64)
                np.testing.assert_allclose(scores["log_return"], earned_in_all, rtol=1e-6)


def test_rows_that_nobody_knows_of_are_dropped(tmp_path: Path) -> None:
    study, folder = made(8), tmp_path / "study"
    undisturbed = play(tmp_path / "undisturbed", study)
    interrupted(folder, study, 7)
    with (folder / "metrics.jsonl").open("a") as file:
        for lane in ("trial-5/split-00/seed-0", "trial-99/split-00/seed-0", "somebody"):
            file.write(json.dumps({"lane": lane, "updates": 4}) + "\n")
        file.write(read_first_line(folder))  # twice
        file.write('{"lane": "trial-5')
    check_same(folder, play(folder, study), undisturbed)


def read_first_line(folder: Path) -> str:
    return (folder / "metrics.jsonl").read_text().splitlines(keepends=True)[0]


# --- orders ---------------------------------------------------------------------------------------


def test_orders_begin_new_lanes_and_leave_the_others(tmp_path: Path) -> None:
    """The first round begins all lanes of its batch; the next one goes on with them; empty places
    stay idle.
    """
    study = made(3, batch=2)
    (tmp_path / "study").mkdir()
    with open_study_folder(study, tmp_path / "study", None) as machine:
        machine.begin()
        first, second = make_orders(machine, 0), make_orders(machine, 1)
        assert [order.until for order in first] == [(1, 1)] * 2
        assert [order.new_lanes.lanes for order in first if order.new_lanes] == [(0, 1)] * 2
        assert [order.until for order in second] == [(1, 0)] * 2  # one trial for two places
        with fakes([machine]) as workers:
            chunks = [
                worker.batches[0].advance(order)
                for worker, order in zip(workers, first, strict=True)
            ]
            decided = machine.process(0, chunks)
        assert [d.state for d in decided] == ["going", "going"]
        for order in make_orders(machine, 2):
            assert order.until == (3, 3)
            assert order.new_lanes is not None
            assert order.new_lanes.lanes == ()
            assert order.round == 2


def test_seeds_depend_on_split_and_seed_alone() -> None:
    """Trials are compared under equal luck; splits and seeds have luck of their own."""
    market = made(3, seeds=2).market
    values = {"train.learning_rate": 1e-3, "train.gamma": 0.9, "market.limits.reserve": 0.1}
    seeds = [market.lane(values, split, seed).seed for split in range(2) for seed in range(2)]
    others = [
        market.lane({**values, "train.gamma": 0.95}, split, seed).seed
        for split in range(2)
        for seed in range(2)
    ]
    assert seeds == others
    assert len(set(seeds)) == 4


# --- the folder -----------------------------------------------------------------------------------


def test_two_studies_are_played_as_if_alone(tmp_path: Path) -> None:
    one, two = made(5), made(7, seed=3)
    alone = [play(tmp_path / f"alone-{k}", study) for k, study in enumerate((one, two))]
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    with (
        open_study_folder(one, folders[0], None) as a,
        open_study_folder(two, folders[1], None) as b,
    ):
        a.begin()
        b.begin()
        with fakes([a, b]) as workers:
            Scheduler([a, b], workers, lambda *_: None).run()  # type: ignore[arg-type]
        together = [Played(study, table(study.optuna_study)) for study in (a, b)]
    for folder, played, other in zip(folders, together, alone, strict=True):
        check_same(folder, played, other)


def test_workers_may_die_between_any_two_orders(tmp_path: Path) -> None:
    """Their places are taken by others that know what the checkpoints hold."""
    study, rng = made(8), random.Random(3)
    undisturbed = play(tmp_path / "undisturbed", study)
    (tmp_path / "study").mkdir()
    deaths = 0
    with open_study_folder(study, tmp_path / "study", None) as machine:
        machine.begin()
        with fakes([machine]) as workers:
            for worker in workers:
                answer = worker.answer

                def dying(worker: Any = worker, answer: Any = answer) -> Any:
                    nonlocal deaths
                    if worker.ready and rng.random() < 0.3:
                        deaths += 1
                        for _ in worker.answers:
                            worker.connection.read(1)
                        worker.start()
                        return ()
                    return answer()

                worker.answer = dying  # type: ignore[method-assign]
            Scheduler([machine], workers, lambda *_: None).run()  # type: ignore[arg-type]
        played = Played(machine, table(machine.optuna_study))
    assert deaths > 5
    check_same(tmp_path / "study", played, undisturbed)


def test_the_number_of_a_dead_driver_may_be_taken(tmp_path: Path) -> None:
    """By a process that has nothing to do with the study."""
    study, folder = made(3), tmp_path / "study"
    interrupted(folder, study, 2)
    with open_study_folder(study, folder, None) as machine:
        lease = machine.optuna_study.user_attrs[LEASE]
    found = open_storage(folder, None)
    open_study(found, study.request.name).set_user_attr(LEASE, {**lease, "pid": os.getppid()})
    check_whole(folder, play(folder, study), 3)


def test_a_broken_state_is_named(tmp_path: Path) -> None:
    play(tmp_path / "study", made(1, batch=1))
    (tmp_path / "study" / "board.json").write_text("{")
    with pytest.raises(
        RunError, match=r"board\.json: is not JSON: .*; restore it .* or start .* another name"
    ):
        play(tmp_path / "study", made(1, batch=1))


def test_what_the_state_says_is_plain_json(tmp_path: Path) -> None:
    play(tmp_path / "study", made(3))
    json.loads((tmp_path / "study" / "board.json").read_text(), parse_constant=pytest.fail)
