"""`flatout train`: real trainings of tiny agents, their files, interruption and resumption, and
what is refused.
"""

import json
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from click.testing import Result
from typer.testing import CliRunner

from flatout.bars.read import read_bars
from flatout.bars.synthetic import RandomWalk
from flatout.bars.write import to_table, write_bars
from flatout.cli.main import main
from flatout.errors import FlatoutError, RulesError
from flatout.file_names import file_name
from flatout.policies.bundle import Bundle
from flatout.policies.bundle_files import flatten
from flatout.training.plan import Plan
from flatout.training.request import TrainRequest
from flatout.workers import devices
from rounding import close_to

N_BARS = 400
LANES = [f"{symbol}-seed{seed}" for symbol in ("AAA", "BBB") for seed in (0, 1)]
TINY = ["--n-envs", "8"]
for setting in ("train.hidden=[8]", "train.n_steps=8", "features.indicators=['return_1']"):
    TINY += ["--set", setting]
FOUR = ["--symbols", "AAA", "BBB", "--seeds", "2", *TINY]
LONG = [
    *FOUR,
    "--timesteps",
    "25600",
    "--evaluations",
    "20",
    "--workers",
    "1",
]  # one process: it compiles once
UPDATES = 25600 // 64
PATIENCE = 600.0  # seconds that a run may take on a busy machine


@pytest.fixture(scope="module")
def bars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two symbols, hourly, as CSV."""
    table = to_table(RandomWalk(n_bars=N_BARS, symbols=("AAA", "BBB")).panel())
    path = tmp_path_factory.mktemp("bars") / "bars.csv"
    table.with_columns(pl.col("date").dt.replace_time_zone(None)).write_csv(path)
    return path


def call(*words: str) -> Result:
    return CliRunner().invoke(main, ["train", *words], env={"COLUMNS": "160"})


def start(*words: str) -> subprocess.Popen[str]:
    """The command as a process of its own."""
    line = [sys.executable, "-c", "from flatout.cli.main import app; app()", "train", *words]
    return subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def refusal(out: Path, *words: str) -> str:
    result = call(*words, "--out", str(out))
    assert isinstance(result.exception, FlatoutError), result.exception
    assert not out.exists() or not any(out.iterdir())
    return str(result.exception)


def trained(out: Path, *words: str) -> dict[str, Any]:
    """What a training prints on standard output, which must be JSON and no more."""
    result = call(*words, "--json", "--out", str(out))
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    told: dict[str, Any] = json.loads(result.stdout)
    return told


@pytest.fixture(scope="module")
def tested(bars: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return trained(tmp_path_factory.mktemp("tested"), "--bars", str(bars), *LONG, "--test-run")


@pytest.fixture(scope="module")
def uninterrupted(bars: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return trained(tmp_path_factory.mktemp("runs"), "--bars", str(bars), *LONG)


def rows_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.long
def test_a_test_run_leaves_everything(tested: dict[str, Any], bars: Path) -> None:
    run = Path(tested["run"])
    assert json.loads((run / "report.json").read_text()) == tested
    assert sorted(path.name for path in run.iterdir()) == sorted([
        *LANES, "about.json", "checkpoints", "lock", "logs", "metrics.jsonl", "report.json",
        "settings.json",
        "tensorboard",
    ])  # fmt: skip
    assert sorted(path.name for path in (run / "tensorboard").iterdir()) == LANES
    assert sorted((row["lane"], row["updates"]) for row in rows_of(run)) == [
        (lane, k) for lane in LANES for k in (1, 2)
    ]
    about, settings = (
        json.loads((run / name).read_text()) for name in ("about.json", "settings.json")
    )
    assert about["verb"] == "train"
    assert about["request"]["symbols"] == ["AAA", "BBB"]
    assert about["request"]["fingerprints"]["AAA"] == read_bars(bars, symbols=["AAA"]).fingerprint
    assert settings["settings"]["train"]["n_envs"] == 8


@pytest.mark.long
def test_the_report_has_every_policy_beside_the_baselines(tested: dict[str, Any]) -> None:
    assert list(tested["agents"]) == ["AAA", "BBB"]
    for name, agent in tested["agents"].items():
        assert agent["policies"] == [f"{name}-seed0", f"{name}-seed1"]
        assert set(agent["metrics"]) == {
            *agent["policies"],
            "cash",
            "buy_and_hold",
            "equal_weight",
            "momentum",
        }
        assert agent["bars"] == 0.2 * N_BARS - 1
        assert agent["assumptions"].startswith("fills at the next open")


@pytest.mark.long
def test_bundles_load_and_act(tested: dict[str, Any], bars: Path) -> None:
    assert list(tested["bundles"]) == LANES
    for lane, folders in tested["bundles"].items():
        best, last = (Bundle.load(Path(tested["run"]) / folder) for folder in folders)
        assert (last.notes["lane"], last.notes["updates"], last.notes["timesteps"]) == (
            lane,
            2,
            128,
        )
        assert best.notes["updates"] in (1, 2)
        market = best.market(read_bars(bars, symbols=[lane[:3]]))
        assert best.act(np.zeros(market.observation_size, np.float32)).shape == (
            market.action_size,
        )


@pytest.mark.long
def test_the_judge_of_training_and_the_report_agree(uninterrupted: dict[str, Any]) -> None:
    """One runs in JAX during the training, the other is the backtest of the bundle: NumPy, in
    double precision.
    """
    rows = rows_of(Path(uninterrupted["run"]))
    for lane in LANES:
        bundle = Bundle.load(Path(uninterrupted["run"]) / lane / "best")
        own = [row for row in rows if row["lane"] == lane]
        (best,) = (row for row in own if row["updates"] == bundle.notes["updates"])
        assert best["scores"]["reward"] == max(row["scores"]["reward"] for row in own)
        assert best["scores"]["reward"] == bundle.notes["best_held_out_reward"]
        earned = math.log1p(uninterrupted["agents"][lane[:3]]["metrics"][lane]["total_return"])
        # every bar rounds the account's equity, which is about 1, in single precision
        expected = close_to(earned, roundings=64 * 0.2 * N_BARS, size=1.0, dtype=np.float32)
        assert best["scores"]["log_return"] == expected, lane


@pytest.mark.slow
def test_an_interrupted_run_goes_on_and_ends_as_if_nothing_had_happened(
    bars: Path, tmp_path: Path, uninterrupted: dict[str, Any]
) -> None:
    process = start("--bars", str(bars), *LONG, "--json", "--out", str(tmp_path))
    end = time.monotonic() + PATIENCE
    while not any(path.stat().st_size for path in tmp_path.glob("*/metrics.jsonl")):
        assert process.poll() is None and time.monotonic() < end, process.communicate()
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C on a terminal: the workers get it too
    said, complained = process.communicate(timeout=PATIENCE)
    (run,) = tmp_path.iterdir()
    assert (process.returncode, said) == (130, "")
    assert complained == f"interrupted; go on with: flatout train --resume {run}\n"
    assert rows_of(run)
    done = [Bundle.load(path).notes["updates"] for path in run.glob("*-seed*/last")]
    assert done and min(done) < UPDATES, "the interruption came too late to tell anything"

    result = call("--resume", str(run), "--json")
    assert result.exit_code == 0, result.output
    told, other = json.loads(result.stdout), Path(uninterrupted["run"])
    assert told | {"run": ""} == uninterrupted | {"run": ""}
    for lane in LANES:
        for kind in ("best", "last"):
            one, two = (Bundle.load(folder / lane / kind) for folder in (run, other))
            assert one.notes == two.notes
            for name, array in flatten(one.network).items():
                np.testing.assert_array_equal(array, flatten(two.network)[name])
    for path in (other / "checkpoints").iterdir():
        assert path.read_bytes() == (run / "checkpoints" / path.name).read_bytes()
    assert by_place(run) == by_place(other)


def by_place(run: Path) -> dict[tuple[str, int], Any]:
    """Rows by lane and updates, without speeds; none twice."""
    rows = rows_of(run)
    found = {(row["lane"], row["updates"]): row | {"steps_per_s": 0} for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.slow
def test_a_finished_run_may_be_resumed(tested: dict[str, Any]) -> None:
    result = call("--resume", tested["run"])
    assert result.exit_code == 0, result.output
    assert "next: flatout backtest --policy" in result.output
    assert json.loads((Path(tested["run"]) / "report.json").read_text()) == tested


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "named"),
    [
        ([], "f.toml"),
        (["--symbols", "BBB", "--bar", "2h"], "f.toml --symbols BBB --bar 2h"),
        (["--bars", "bars.csv"], "f.toml"),
        (["--bars", "other.csv"], "--bars YOUR_BARS"),
    ],
)
def test_what_comes_next_names_the_bars_as_they_were_given(
    bars: Path, words: list[str], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("bars.csv", "other.csv"):
        shutil.copy(bars, name)
    Path("f.toml").write_text('[data]\nbars = "bars.csv"\n')
    result = call("f.toml", *words, *TINY, "--test-run", "--evaluations", "1", "--workers", "1")
    assert result.exit_code == 0, result.output
    [command] = re.findall(r"^next: flatout (.*)$", result.stdout, re.MULTILINE)
    assert command.endswith(f"/best {named}")
    again = CliRunner().invoke(main, shlex.split(command.replace("YOUR_BARS", "other.csv")))
    assert again.exit_code == 0, again.output


@pytest.mark.long
def test_a_plan_is_json_and_leaves_nothing(
    bars: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = call("--bars", str(bars), *LONG, "--plan", "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert (told["agents"], told["workers"], told["n_envs"], told["n_steps"]) == (4, 1, 8, 8)
    assert (told["updates"], told["steps"]) == (UPDATES, 4 * 25600)
    memory = told["memory_bytes"]
    assert memory["worker"] == sum(
        memory[part] for part in ("rollout", "minibatch", "state", "data", "process")
    )
    assert told["trial_peak_bytes"] > 10**8
    assert told["seconds"] == pytest.approx(
        told["compile_seconds"] + told["steps"] / told["steps_per_s"]
    )
    assert list(tmp_path.iterdir()) == []


def test_a_plan_counts_the_memory_of_all_workers(
    bars: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is measured here."""
    monkeypatch.setattr(
        Plan, "with_trial", lambda plan, slots: replace(plan, steps_per_s=50.0, compile_seconds=2.0)
    )
    told = json.loads(call("--bars", str(bars), *FOUR, "--workers", "2", "--plan", "--json").stdout)
    assert (told["workers"], told["seconds"]) == (2, 2 + told["steps"] / 50)
    assert told["memory_bytes"]["all"] == 2 * told["memory_bytes"]["worker"]


@pytest.mark.parametrize(
    "words",
    [
        ["--symbols", "AAA", "BBB", "--seeds", "2"],
        ["--seeds", "2", "--symbols", "AAA", "BBB"],
        ["--symbols", "AAA", "--symbols", "BBB", "--seeds", "2"],
        ["--symbols", "AAA", "--seeds", "2", "--symbols", "BBB"],
        ["--symbols", "AAA,BBB", "--seeds", "2"],
        ["--symbols", "AAA, BBB", "--seeds", "2"],
        ["--symbols=AAA,BBB", "--seeds", "2"],
    ],
)
def test_symbols_may_be_given_in_a_row_or_one_by_one(
    monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    asked: list[TrainRequest] = []

    def prepare(request: TrainRequest, *_: Any) -> None:
        asked.append(request)
        raise RulesError("enough")

    monkeypatch.setattr("flatout.training.train.prepare_training", prepare)
    call(*words)
    assert (asked[0].symbols, asked[0].seeds) == (["AAA", "BBB"], 2)


@pytest.mark.parametrize("words", [["--symbols"], ["--symbols", "--json"]])
def test_symbols_without_a_symbol_are_refused(words: list[str]) -> None:
    """Else the built-in market would be trained instead."""
    result = call("--plan", *words)
    assert result.exit_code == 2
    assert "--symbols needs at least one value" in result.output


def test_symbols_without_bars_are_refused(tmp_path: Path) -> None:
    assert "symbols are AAA, but no bars are given (`bars`" in refusal(
        tmp_path / "runs", "--symbols", "AAA", *TINY
    )


def test_an_unknown_symbol_is_refused(bars: Path, tmp_path: Path) -> None:
    assert "CCC" in refusal(
        tmp_path / "runs", "--bars", str(bars), "--symbols", "AAA", "CCC", *TINY
    )


def test_a_symbol_given_twice_is_refused(bars: Path, tmp_path: Path) -> None:
    said = refusal(tmp_path / "runs", "--bars", str(bars), "--symbols", "AAA", "BBB", "AAA", *TINY)
    assert said == "symbols name AAA twice: name each once"


def test_too_few_bars_are_refused(bars: Path, tmp_path: Path) -> None:
    said = refusal(
        tmp_path / "runs", "--bars", str(bars), "--bar", "4h", "--held-out", "0.01", *TINY
    )
    assert said.startswith("portfolio: 100 bars are too few")


def test_minibatches_that_do_not_divide_are_refused(bars: Path, tmp_path: Path) -> None:
    said = refusal(tmp_path / "runs", "--bars", str(bars), *TINY, "--set", "train.minibatches=7")
    assert "64 transitions cannot be split into 7 equal minibatches" in said


@pytest.mark.parametrize(
    "content", [None, "{}", "not JSON", '{"verb": "backtest", "request": {"bars": null}}']
)
def test_what_is_no_training_cannot_be_resumed(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "about.json").write_text(content)
        (tmp_path / "settings.json").write_text("{}")
    result = call("--resume", str(tmp_path))
    assert isinstance(result.exception, FlatoutError)
    assert str(result.exception).startswith(f"{tmp_path / 'about.json'}: ")
    assert str(result.exception).endswith("; give `resume` the folder of a training that can go on")


@pytest.mark.long
def test_a_run_whose_bars_have_changed_cannot_be_resumed(
    tested: dict[str, Any], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(tested["run"], run)
    changed = tmp_path / "changed.parquet"
    write_bars(RandomWalk(n_bars=N_BARS, symbols=("AAA", "BBB"), seed=1).panel(), changed)
    about = json.loads((run / "about.json").read_text())
    about["request"]["bars"] = str(changed)
    (run / "about.json").write_text(json.dumps(about))
    result = call("--resume", str(run))
    assert isinstance(result.exception, FlatoutError)
    assert str(result.exception).startswith(
        f"the bars have changed since the run was started ({changed})"
    )


# --- engines and devices --------------------------------------------------------------------------


@pytest.mark.slow
def test_pytorch_trains_and_its_policies_trade(bars: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    words = ("--bars", str(bars), "--symbols", "AAA", "--engine", "torch", "--device", "cpu", *TINY)
    result = call(*words, "--test-run", "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert "cpu (torch): 2 updates of 8 accounts" in result.output
    [run] = tmp_path.iterdir()
    assert json.loads((run / "settings.json").read_text())["settings"]["train"]["engine"] == "torch"
    bundle = Bundle.load(run / "AAA-seed0" / "last")
    assert np.isfinite(bundle.act(np.zeros((1, bundle.observation_size)))).all()
    report = json.loads((run / "report.json").read_text())
    again = call(
        "--resume", str(run), "--json"
    )  # nothing is left to do, and the engine is still known
    assert json.loads(again.stdout)["agents"] == report["agents"]


@pytest.mark.skipif(bool(devices.list_hardware()), reason="this machine has a GPU")
def test_a_device_that_is_not_there_is_refused(bars: Path, tmp_path: Path) -> None:
    said = refusal(tmp_path / "out", "--bars", str(bars), "--device", "cuda", *TINY)
    assert said.startswith(
        "the device cuda: jax and torch see no such device here; leave `device` out"
    )
    said = refusal(tmp_path / "out", "--bars", str(bars), "--device", "cuda0", *TINY)
    assert said.startswith("the device cuda0 is unknown; there are auto, cpu, cuda, cuda:N")


def test_an_unknown_engine_is_refused(bars: Path, tmp_path: Path) -> None:
    said = refusal(tmp_path / "out", "--bars", str(bars), "--engine", "fast", *TINY)
    assert "'auto', 'jax' or 'torch'" in said


# --- what a machine cannot do, and names that would lead elsewhere --------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--timesteps", "20000000000000"],
            "more steps of the optimiser than a program can count",
        ),
        (["--n-envs", "1000000000"], "is more than a program can count"),
        (
            ["--set", "train.epochs=99999999999999"],
            "train.epochs (from --set train.epochs=99999999999999)",
        ),
        (["--set", "market.episode_bars=100000000000000000000"], "market.episode_bars (from --set"),
        (["--symbols", "../../up"], "symbol ../../up: there are no bars of it"),
    ],
)
def test_what_no_program_can_count_is_refused(
    bars: Path, tmp_path: Path, words: list[str], said: str
) -> None:
    assert said in refusal(tmp_path / "runs", "--bars", str(bars), *words, "--plan")


@pytest.mark.parametrize(
    "words", [["--seed", "-1"], ["--seeds", "1000000"], ["--timesteps", "9" * 30], ["--seed", "x"]]
)
def test_options_beyond_their_limits_are_refused(bars: Path, words: list[str]) -> None:
    result = call("--bars", str(bars), *words, "--plan")
    assert result.exit_code == 2
    assert f"Invalid value for '{words[0]}'" in result.output


@pytest.mark.long
def test_symbols_that_look_like_paths_stay_in_the_run(tmp_path: Path) -> None:
    symbols = ("../../up", "BTC/USDT", "[red]x")
    write_bars(RandomWalk(n_bars=N_BARS, symbols=symbols).panel(), tmp_path / "bars.parquet")
    words = [
        "--symbols",
        *symbols,
        "--timesteps",
        "128",
        "--evaluations",
        "1",
        "--workers",
        "1",
        *TINY,
    ]
    told = trained(tmp_path / "a" / "b" / "runs", "--bars", str(tmp_path / "bars.parquet"), *words)
    run = Path(told["run"])
    assert run.parent == tmp_path / "a" / "b" / "runs"
    lanes = {file_name(f"{symbol}-seed0") for symbol in symbols}
    assert lanes < {path.name for path in run.iterdir()}
    assert all(Bundle.load(run / lane / "best") for lane in lanes)
    assert {path.name for path in tmp_path.iterdir()} == {"a", "bars.parquet", "bars.manifest.json"}
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b"]
