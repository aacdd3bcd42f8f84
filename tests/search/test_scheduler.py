"""Whole studies in real worker processes: to their reports, and with every bit in place whatever is
killed.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import safetensors.numpy
from evidence_anew import weigh_report_anew
from small_studies import HERE, SPACE, prepared, run_small, small_panel, small_slots, stored

from flatout.errors import RunError
from flatout.evaluation.backtest import backtest
from flatout.evaluation.saved_policy import SavedPolicy
from flatout.evaluation.trial_registry import read_records
from flatout.evaluation.verdict import format_number
from flatout.policies.bundle import Bundle
from flatout.runs import LOCK, hold_folder
from flatout.search import scheduler
from flatout.search.about_study import is_begun
from flatout.search.finalist_results import FILE as FINALIST_RESULTS
from flatout.search.market_study import LOG_RETURN
from flatout.search.report_model import StudyReport
from flatout.search.run import PreparedStudy, make_folder, open_study_folder, run_studies
from flatout.search.scheduler import STOP
from flatout.search.storage import JOURNAL
from flatout.search.study import Study
from flatout.search.study_state import read_state
from flatout.search.trial_files import read_trial
from flatout.settings.study import usual_space
from rounding import assert_close
from worker_processes import children, lives

pytestmark = pytest.mark.long

PATIENCE = 600.0  # seconds that anything here may take on a busy machine
OTHER: dict[str, Any] = {
    "panel": small_panel(seed=1),
    "search": {"trials": 3, "seed": 7},
}  # shorter, on other bars
LONG = {"search": {"trials": 24}}
DEAD = {
    **SPACE,
    "market.limits.cooldown_bars": {"low": 0, "high": 9, "whole": True},
}  # there is no stop to cool from


@pytest.fixture(scope="module")
def cache() -> Path:
    """Compiled programs, for all tests of the session."""
    return Path(os.environ["JAX_COMPILATION_CACHE_DIR"])


@pytest.fixture(scope="module", autouse=True)
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Trials of tests are no evidence about anybody's bars."""
    folder = tmp_path_factory.mktemp("registry")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("FLATOUT_REGISTRY", str(folder))
        yield folder


@pytest.fixture(autouse=True)
def nobody_is_left() -> Iterator[None]:
    """Every test ends its workers."""
    yield
    assert not children(os.getpid())


class Refused(NamedTuple):
    """A study of the name "dead" that was refused, in this folder."""

    said: str
    out: Path


class Ended:
    """A study that is over, and its report."""

    def __init__(self, folder: Path, report: StudyReport | None) -> None:
        assert report is not None
        self.folder, self.report = folder, report.facts()
        self.table = stored(folder, folder.name)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, cache: Path, dead_knob: Refused) -> Ended:
    """The usual study, which nobody touched."""
    out = tmp_path_factory.mktemp("undisturbed")
    [report] = run_small(out, cache)
    return Ended(out / "study", report)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory, cache: Path, dead_knob: Refused) -> Ended:
    """The shorter one, likewise."""
    out = tmp_path_factory.mktemp("other")
    [report] = run_small(out, cache, {"other": OTHER})
    return Ended(out / "other", report)


@pytest.fixture(scope="module")
def dead_knob(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Refused:
    """What is said of a knob that does nothing. Its one worker has as many lanes as all that
    follow: it compiles for them.
    """
    out = tmp_path_factory.mktemp("dead")
    with pytest.raises(RunError) as caught:
        run_small(out, cache, {"dead": {"search": {"space": DEAD, "batch": 1}}}, workers=1)
    return Refused(str(caught.value), out)


def results(folder: Path) -> dict[str, bytes]:
    """All that a study found: trials, finalists and policies, by name."""
    found = [
        *(folder / "trials").iterdir(),
        folder / FINALIST_RESULTS,
        *(folder / "policy").rglob("*.*"),
    ]
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(found)}


def check_same(folder: Path, undisturbed: Ended, url: str | None = None) -> None:
    """Nothing tells that a study was disturbed."""
    table = stored(folder, folder.name, url)
    assert [row["number"] for row in table] == list(range(len(undisturbed.table)))
    assert table == undisturbed.table
    assert results(folder) == results(undisturbed.folder)
    report = json.loads((folder / "report.json").read_text())
    for key in (
        "winner",
        "curves",
        "baselines",
        "null",
        "overfitting",
        "trials",
        "costs",
        "delays",
        "finalists",
    ):
        assert report[key] == undisturbed.report[key], key
    check_tidy(folder)


def check_tidy(folder: Path) -> None:
    """Nothing lies about."""
    expected = {
        "about.json", "board.json", "checkpoints", "controls.safetensors", FINALIST_RESULTS,
        "days.csv", "hold_out.json", "ledger.csv", "lock", "logs", "metrics.jsonl",
        "policy", "report.html", "report.json", "settings.json", "study.journal",
        "study.journal.lock", "trials",
    }  # fmt: skip
    assert {path.name for path in folder.iterdir()} <= expected
    assert not list(folder.rglob(".*"))


def wait_for(what: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """What comes to hold."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = what()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError(f"{what} did not come true")


# --- undisturbed ----------------------------------------------------------------------------------


def test_a_dead_knob_stops_the_study_by_name(dead_knob: Refused) -> None:
    assert dead_knob.said.startswith(
        "search.space holds market.limits.cooldown_bars, which changed nothing"
    )
    assert not any(name in dead_knob.said for name in SPACE)


def test_a_study_that_was_refused_is_as_if_it_had_not_begun(
    dead_knob: Refused, registry: Path
) -> None:
    """Its name is free for other settings, and no trial of it is counted."""
    folder = dead_knob.out / "dead"
    left = {path.name for path in folder.iterdir()}
    assert not is_begun(folder)
    assert left <= {LOCK, JOURNAL, f"{JOURNAL}.lock"}
    assert str(folder) not in [record.folder for record in read_records(registry)]
    other = prepared(dead_knob.out, "dead", features={"indicators": ["return_1"]})
    with open_study_folder(other, folder, None) as study:
        assert study.untried
        assert study.market.settings.features.indicators == ("return_1",)


def test_a_default_space_is_called_so(tmp_path: Path, cache: Path) -> None:
    """Nobody wrote it, so nobody can take a knob out of it. Rollouts of 64 steps are too short for
    an update to come near the limits on updates.
    """
    usual = {"search": {"space": usual_space(), "batch": 1}}
    with pytest.raises(RunError) as refused:
        run_small(tmp_path, cache, {"default": usual}, workers=1)
    assert str(refused.value).startswith("the default search.space holds ")
    assert "train.target_kl, which changed nothing" in str(refused.value)
    assert "write a search.space without it, or change the settings" in str(refused.value)


def test_a_study_runs_to_its_report(undisturbed: Ended, registry: Path) -> None:
    folder, report = undisturbed.folder, undisturbed.report
    assert json.loads((folder / "report.json").read_text()) == report
    assert len(undisturbed.table) == len(report["trials"]) == 6
    complete = [row for row in undisturbed.table if row["state"] == "COMPLETE"]
    assert len(complete) >= 2
    assert all(len(row["intermediate"]) == 6 for row in complete)  # three rungs, two splits
    assert {gate["name"] for gate in report["verdict"]["gates"]} >= {
        "PBO",
        "deflated Sharpe",
        "costs",
        "delay",
    }
    assert [row["bars"] for row in report["delays"]] == [0, 1, 2]
    assert [row["factor"] for row in report["costs"]] == [0.0, 1.0, 2.0, 3.0]
    sharpes = [row["sharpe"] for row in report["costs"]]
    assert sharpes == sorted(sharpes, reverse=True)  # what costs more earns less
    assert len(report["winner"]["paths"]) == 2  # one path, two seeds
    assert report["winner"]["trial"] in {row["trial"] for row in report["finalists"]}
    assert [o["what"] for o in report["assumptions"]["hold_out"]["openings"]] == [
        f"winner, trial {report['winner']['trial']}"
    ]
    [noted] = [r for r in read_records(registry) if r.folder == str(folder.resolve())]
    assert noted.trials == 6
    assert [look.what for look in noted.openings] == [f"winner, trial {report['winner']['trial']}"]
    counts = report["assumptions"]["trials"]
    assert (
        counts["this_study"] + counts["of_others"] == counts["ever"] == report["deflated"]["trials"]
    )
    check_tidy(folder)


def test_the_later_of_two_studies_says_that_its_hold_out_is_worn(
    undisturbed: Ended, other: Ended
) -> None:
    """Their bars have the same symbols and times: whether the prices are the same, nobody asks."""
    first, second = sorted((undisturbed.report, other.report), key=lambda r: r["created"])
    assert first["assumptions"]["hold_out"]["wear"] is None
    assert first["assumptions"]["hold_out"]["opened_before"] == 0
    found = second["assumptions"]
    assert (found["hold_out"]["opened_before"], found["hold_out"]["opened_by"]) == (1.0, 1)
    sentence = found["hold_out"]["wear"]
    assert sentence.startswith("100 % of these sealed bars were in a hold-out that was opened")
    [gate] = [g for g in second["verdict"]["gates"] if g["name"] == "hold-out Sharpe"]
    assert sentence in gate["found"]
    assert found["trials"]["of_others"] >= first["assumptions"]["trials"]["this_study"]
    assert found["trials"]["overlap"] == 1.0
    assert any(row["overlap"] == 1.0 and row["counts"] for row in found["other_studies"])
    page = (other.folder if second is other.report else undisturbed.folder) / "report.html"
    assert sentence in page.read_text()


def test_each_gate_saw_the_figure_that_the_report_shows(undisturbed: Ended) -> None:
    """And that figure is found again from what was stored."""
    folder, report = undisturbed.folder, undisturbed.report
    anew = weigh_report_anew(prepared(folder.parent), folder, report)
    gates = {gate["name"]: gate["found"].split("; ") for gate in report["verdict"]["gates"]}
    null, overfitting = report["null"], report["overfitting"]
    costs = {row["factor"]: row["skill_sharpe"] for row in report["costs"]}
    delays = {row["bars"]: row["skill_sharpe"] for row in report["delays"]}
    shown = {
        "deflated Sharpe": (report["deflated"]["dsr_effective"], anew.deflated_sharpe),
        "PBO": (overfitting["pbo"], anew.pbo),
        "copies as good": (null["p_value"], anew.null_p),
        "costs": (costs[2.0], anew.cost_sharpes[2.0]),
        "delay": (delays[1], anew.delay_sharpes[1]),
        "trades": (report["trades"]["count"], anew.trades),
        "worst path": (
            min(path["total_return"] for path in report["winner"]["paths"]),
            anew.worst_path,
        ),
        "not constant": (report["controls"]["constant"]["probability"], anew.activity_p),
    }
    for name, (figure, again) in shown.items():
        assert gates[name][0] == format_number(figure), name
        assert again == pytest.approx(figure, rel=1e-6), name
    assert gates["PBO"][1] == f"loses in {format_number(overfitting['probability_of_loss'])}"
    assert overfitting["probability_of_loss"] == anew.probability_of_loss
    for name, lead in anew.leads.items():
        assert float(gates[f"beats {name}"][0]) == pytest.approx(lead, rel=0.01), name
    sealed = float(gates["hold-out Sharpe"][0])
    assert sealed == pytest.approx(anew.hold_out_sharpe, rel=0.01)
    assert len(gates) == len(shown) + len(anew.leads) + 1


def test_the_winners_policies_can_be_loaded_and_act(undisturbed: Ended) -> None:
    panel = small_panel()
    for seed in range(2):
        bundle = Bundle.load(undisturbed.folder / "policy" / f"seed-{seed}")
        assert bundle.notes["trial"] == undisturbed.report["winner"]["trial"]
        assert bundle.notes["seed"] == seed
        assert bundle.market(panel).shape.n_assets == 2
        reserve = undisturbed.report["winner"]["params"]["market.limits.reserve"]
        assert bundle.settings.limits.reserve == reserve  # the market that it was trained in


def test_finalists_are_trained_with_fresh_seeds(undisturbed: Ended) -> None:
    """None of them is the agent that was searched: the luck that chose it is gone."""
    results = safetensors.numpy.load_file(undisturbed.folder / FINALIST_RESULTS)
    for number, terms in zip(results["finalists"], results["finalist_terms"], strict=True):
        trial = read_trial(undisturbed.folder, int(number))
        for seed in range(terms.shape[2]):
            for split in range(terms.shape[1]):
                again, searched = terms[0, split, seed, LOG_RETURN], trial.log_return[split, 0]
                assert not np.allclose(again, searched, rtol=0, atol=1e-4)
        assert (
            terms[0, :, 1, LOG_RETURN] != terms[0, :, 0, LOG_RETURN]
        ).any()  # the second has luck of its own
        for harder in terms[1:, :, 0, LOG_RETURN]:
            assert (harder != trial.log_return[:, 0]).any()


def test_the_sealed_bars_are_judged_as_a_backtest_of_the_policies(undisturbed: Ended) -> None:
    panel = small_panel()
    cut = panel.n_bars - round(0.15 * panel.n_bars)
    curves = undisturbed.report["curves"]["hold_out"]
    assert curves["time"][0] == str(panel.time[cut].astype("datetime64[s]"))
    assert len(curves["time"]) == panel.n_bars - cut
    for seed in range(2):
        bundle = Bundle.load(undisturbed.folder / "policy" / f"seed-{seed}")
        history = backtest(bundle.market(panel), SavedPolicy(bundle), 1, cut - 1)
        # here alone, there beside others: should an action be rounded differently, each bar's gain
        # is so too
        expected = history.equity[1:, 0]
        moves = np.abs(np.diff(np.log(panel.close), axis=0)).max()
        assert_close(
            curves["seeds"][seed],
            expected,
            roundings=8 * len(expected),
            size=moves,
            dtype=np.float32,
        )


def test_a_study_that_is_over_is_not_run_again(
    undisturbed: Ended, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = results(undisturbed.folder)
    monkeypatch.setattr(scheduler, "start_study_workers", pytest.fail)
    [report] = run_small(undisturbed.folder.parent, cache)
    assert report is not None
    assert report.facts() == undisturbed.report
    assert results(undisturbed.folder) == before


def begin(out: Path, study: PreparedStudy) -> None:
    """As far as it comes before its workers start."""
    with open_study_folder(study, make_folder(out, study.request.name), None):
        pass


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"search": {"seed": 1}},
            r"begun with other settings: search\.seed differ; .*only search\.trials may grow",
        ),
        ({"train": {"epochs": 3}}, r"train\.epochs differ"),
        ({"gates": {"pbo": 0.9}}, r"gates\.pbo differ"),
        (
            {"search": {"space": {"train.gamma": {"low": 0.5, "high": 0.9}}}},
            r"search\.space\.train\.gamma\.high",
        ),
        ({"search": {"trials": 5}}, r"was begun with 6 trials; a study may grow, not shrink"),
        (
            {"panel": small_panel(600, seed=1)},
            r"was begun on other bars \(.*, [0-9a-f]{12}; these are [0-9a-f]{12}\)",
        ),
    ],
)
def test_another_study_in_the_same_folder_is_refused(
    undisturbed: Ended, cache: Path, changes: dict[str, Any], message: str
) -> None:
    before = (undisturbed.folder / "settings.json").read_bytes()
    with pytest.raises(RunError, match=message):
        run_small(undisturbed.folder.parent, cache, {"study": changes})
    assert (undisturbed.folder / "settings.json").read_bytes() == before


def test_a_folder_has_one_driver_at_a_time(tmp_path: Path, cache: Path, undisturbed: Ended) -> None:
    """A second one changes nothing, even if it asks for more trials."""
    folder = shutil.copytree(undisturbed.folder, tmp_path / "study")
    before = results(folder), (folder / "settings.json").read_bytes()
    for changes in ({}, {"search": {"trials": 9}}):
        with hold_folder(folder), pytest.raises(RunError, match="by another process"):
            run_small(tmp_path, cache, {"study": changes})
        assert (results(folder), (folder / "settings.json").read_bytes()) == before


def test_a_grown_study_forgets_its_closing_but_not_its_trials(
    tmp_path: Path, undisturbed: Ended
) -> None:
    folder = shutil.copytree(undisturbed.folder, tmp_path / "study")
    begin(tmp_path, prepared(tmp_path, search={"trials": 8}))
    assert not (folder / FINALIST_RESULTS).exists()
    assert json.loads((folder / "settings.json").read_text())["settings"]["search"]["trials"] == 8
    assert stored(folder, "study") == undisturbed.table


def test_a_folder_that_was_only_half_begun_is_begun_again(tmp_path: Path) -> None:
    """Killed between its first two files, by a study whose environments were chosen by memory."""
    changes = {"train": {"n_envs": None}}
    begin(tmp_path, prepared(tmp_path, **changes))
    chosen = json.loads((tmp_path / "study" / "about.json").read_text())["n_envs"]
    (tmp_path / "study" / "settings.json").unlink()
    begin(tmp_path, prepared(tmp_path, **changes))
    (tmp_path / "study" / "about.json").write_text(
        (tmp_path / "study" / "about.json")
        .read_text()
        .replace(f'"n_envs": {chosen}', '"n_envs": 8')
    )
    # what was decided stays decided
    assert prepared(tmp_path, **changes).market.program.n_envs == 8


def test_what_memory_has_decided_stays_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When there is less of it later: another program might round differently."""
    begin(tmp_path, prepared(tmp_path))
    monkeypatch.setattr("flatout.learners.forecast.free_bytes", lambda: 0)
    assert not prepared(tmp_path).market.program.index_only
    assert prepared(tmp_path, "another").market.program.index_only


# --- together, stopped, killed --------------------------------------------------------------------


@pytest.mark.slow
def test_a_stop_ends_it_after_what_was_ordered_and_the_same_call_goes_on(
    tmp_path: Path, cache: Path, undisturbed: Ended
) -> None:
    """Its trials are in a database this time."""
    url = f"sqlite:///{tmp_path}/studies.db"
    rounds: list[int] = []

    def on_round(study: Study, decisions: Any) -> None:
        rounds.append(study.state.round)
        (study.folder / STOP).touch()

    [report] = run_small(tmp_path, cache, on_round=on_round, storage=url)
    assert report is None
    assert rounds == [
        1,
        2,
        3,
    ]  # the one after which it was asked for, and those that were ordered by then
    assert not (tmp_path / "study" / FINALIST_RESULTS).exists()
    [report] = run_small(tmp_path, cache, storage=url)
    assert report is not None
    assert not (tmp_path / "study" / STOP).exists()
    check_same(tmp_path / "study", undisturbed, url)


@pytest.mark.slow
def test_two_studies_at_once_end_as_if_alone(
    tmp_path: Path, cache: Path, undisturbed: Ended, other: Ended
) -> None:
    """They share the workers and a database. One is stopped in between, while the other one runs to
    its report; the same call goes on with it.
    """
    url, studies = f"sqlite:///{tmp_path}/studies.db", {"study": {}, "other": OTHER}

    def on_round(study: Study, decisions: Any) -> None:
        if study.folder.name == "other":
            (study.folder / STOP).touch()

    whole, stopped = run_small(tmp_path, cache, studies, on_round=on_round, storage=url)
    assert whole is not None
    assert stopped is None
    again, resumed = run_small(tmp_path, cache, studies, storage=url)
    assert again == whole
    assert resumed is not None
    check_same(tmp_path / "study", undisturbed, url)
    check_same(tmp_path / "other", other, url)


@pytest.mark.parametrize("when", ["trials", pytest.param("finals", marks=pytest.mark.slow)])
def test_killed_workers_are_replaced_and_nothing_is_lost(
    tmp_path: Path, cache: Path, undisturbed: Ended, when: str
) -> None:
    killed: list[int] = []

    def on_round(study: Study, decisions: Any) -> None:
        if when == "trials" and study.state.round >= 3 and not killed:
            kill()

    def on_stage(study: Study, stage: str) -> None:
        if when == "finals" and stage.startswith(("finalists", "winner")):
            kill()

    def kill() -> None:
        pid = children(os.getpid())[0]
        os.kill(pid, signal.SIGKILL)
        killed.append(pid)

    run_studies([prepared(tmp_path)], small_slots(cache), tmp_path, None, on_round, on_stage)
    assert len(killed) == (1 if when == "trials" else 2)
    check_same(tmp_path / "study", undisturbed)


DRIVER = """
import sys
from pathlib import Path
from small_studies import run_small
run_small(Path(sys.argv[1]), Path(sys.argv[2]), {"study": {"search": {"trials": int(sys.argv[3])}}})
"""


def start_driver(out: Path, cache: Path, trials: int) -> subprocess.Popen[bytes]:
    """A process of its own that runs a study."""
    command = [sys.executable, "-c", DRIVER, str(out), str(cache), str(trials)]
    path = os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path})


def kill_driver(
    out: Path, cache: Path, trials: int, moment: Callable[[], Any], jitter: float
) -> bool:
    """Start a driver and kill it some time after a moment; whether it was still alive. Its workers
    die with it.
    """
    driver = start_driver(out, cache, trials)
    pids: set[int] = set()

    def come() -> bool:
        pids.update(children(driver.pid))
        return driver.poll() is not None or bool(moment())

    try:
        wait_for(come)
        time.sleep(jitter)
        pids.update(children(driver.pid))
    finally:
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    wait_for(lambda: not any(map(lives, pids)))
    return driver.returncode == -signal.SIGKILL


def round_of(folder: Path) -> int:
    state = read_state(folder)
    return -1 if state is None or not state.live_knobs else state.round


def check_driver_kills(
    tmp_path: Path, cache: Path, undisturbed: Ended, rounds: list[int], ends: int, seed: int
) -> None:
    """Killed once at each of these rounds, then so often at the start, during and after the finals;
    then left alone.
    """
    rng, folder, trials = random.Random(seed), tmp_path / "study", len(undisturbed.table)
    at_rounds = [(lambda wanted=wanted: round_of(folder) >= wanted, 0.2) for wanted in rounds]
    at_starts = [(lambda: True, 4.0)] * ends
    over = [(lambda: (state := read_state(folder)) and len(state.finished) == trials, 3.0)] * ends
    finals_over = [((folder / FINALIST_RESULTS).exists, 1.0)] * ends
    moments = [*at_rounds, *over, *finals_over]
    for start in at_starts:
        moments.insert(rng.randrange(len(at_rounds) + 1), start)
    kills = sum(
        kill_driver(tmp_path, cache, trials, moment, rng.uniform(0, jitter))
        for moment, jitter in moments
    )
    assert kills >= len(moments) - ends  # the last ones may find the study over
    run_small(tmp_path, cache, {"study": {"search": {"trials": trials}}})
    check_same(folder, undisturbed)


@pytest.mark.slow
def test_a_killed_driver_leaves_no_orphans_and_its_study_goes_on(
    tmp_path: Path, cache: Path, undisturbed: Ended
) -> None:
    check_driver_kills(tmp_path, cache, undisturbed, rounds=[3], ends=1, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_driver_may_be_killed_twenty_times(
    tmp_path: Path, cache: Path, dead_knob: Refused, seed: int
) -> None:
    [report] = run_small(tmp_path / "alone", cache, {"study": LONG})
    hold_folder = Ended(tmp_path / "alone" / "study", report)
    state = read_state(hold_folder.folder)
    assert state is not None
    rounds = sorted(random.Random(seed).sample(range(state.round - 1), 16))
    (tmp_path / "killed").mkdir()
    check_driver_kills(tmp_path / "killed", cache, hold_folder, rounds, ends=2, seed=seed)


@pytest.mark.slow
def test_a_study_may_grow(tmp_path: Path, cache: Path, other: Ended) -> None:
    folder = shutil.copytree(other.folder, tmp_path / "other")
    [report] = run_small(
        tmp_path, cache, {"other": {**OTHER, "search": {**OTHER["search"], "trials": 5}}}
    )
    assert report is not None
    table = stored(folder, "other")
    assert table[:3] == other.table
    assert len(table) == len(report.trials or ()) == 5
    assert len(report.facts()["assumptions"]["hold_out"]["openings"]) == 2
    check_tidy(folder)
