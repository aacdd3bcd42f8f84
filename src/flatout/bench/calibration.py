"""Does the verdict tell luck from skill? Whole studies on markets whose truth is known.

On random walks nothing can be earned, so every winner must be refused; where a signal is planted
that pays for its costs many times over, the winner must pass.
"""

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from flatout.bars.panel import Panel
from flatout.bars.synthetic import PlantedSignal, RandomWalk
from flatout.foreign import JsonTable
from flatout.search.run import StudyRequest, prepare, run_studies
from flatout.settings.loading import Resolved
from flatout.settings.tables import Settings
from flatout.workers.devices import choose_devices

BARS = 4000
SYMBOLS = ("ALFA", "BETA", "GAMMA")
# per bar and unit of signal, which lasts ten bars on average; a round trip costs 54
SIGNAL_BPS = 60.0
INDICATORS = ("return_1", "roc", "volatility", "extra:signal")
TIMESTEPS = 60_000  # of each trial and split
MANY = 1000  # lanes: more than there are devices
OnVerdict = Callable[[str, JsonTable], None]


def settings_for(trials: int, timesteps: int, seed: int) -> Settings:
    """A small study with the usual space and gates."""
    return Settings.model_validate(
        {
            "features": {"indicators": list(INDICATORS)},
            "train": {"n_envs": 32, "n_steps": 64},
            "search": {"trials": trials, "timesteps": timesteps, "seed": seed},
        }
    )


def make_panel(kind: str, seed: int, strength_bps: float = SIGNAL_BPS) -> Panel:
    """A random walk, or a market with a signal; both show a signal column."""
    planted = PlantedSignal(
        n_bars=BARS, seed=seed, symbols=SYMBOLS, strength_bps=strength_bps
    ).panel()
    if kind == "signal":
        return planted
    walk = RandomWalk(n_bars=BARS, seed=seed, symbols=SYMBOLS).panel()
    return Panel(**{**vars(walk), "extras": planted.extras})


@contextmanager
def own_registry(folder: Path) -> Iterator[None]:
    """Count these trials apart: they are no evidence about anybody's bars."""
    before = os.environ.get("FLATOUT_REGISTRY")
    os.environ["FLATOUT_REGISTRY"] = str(folder)
    try:
        yield
    finally:
        os.environ.pop("FLATOUT_REGISTRY")
        if before is not None:
            os.environ["FLATOUT_REGISTRY"] = before


def calibrate(
    walks: int = 20,
    signals: int = 10,
    trials: int = 32,
    timesteps: int = TIMESTEPS,
    strength_bps: float = SIGNAL_BPS,
    on_verdict: OnVerdict = lambda name, row: None,
) -> JsonTable:
    """Verdicts of studies on so many markets of each kind; `on_verdict(name, row)` gets each."""
    rows: list[JsonTable] = []
    with tempfile.TemporaryDirectory() as out:
        for kind, count in (("walk", walks), ("signal", signals)):
            for seed in range(count):
                panel = make_panel(kind, seed, strength_bps)
                # apart from the others too: made-up markets share their symbols and times
                with own_registry(Path(out) / "registry" / f"{kind}-{seed}"):
                    row = judge_market(
                        kind, seed, panel, trials=trials, timesteps=timesteps, out=Path(out)
                    )
                rows.append(row)
                on_verdict(f"{kind} {seed}", row)
    return {**summarise(rows, trials, timesteps), "strength_bps": strength_bps}


def judge_market(
    kind: str, seed: int, panel: Panel, trials: int, timesteps: int, out: Path
) -> JsonTable:
    """The verdict on one market."""
    chosen = choose_devices("auto", None, MANY)
    slots = chosen.slots
    resolved = Resolved(settings=settings_for(trials, timesteps, seed), origin={})
    request = StudyRequest(f"{kind}-{seed}")
    made = prepare(request, resolved, panel, workers=len(slots), out=out, chosen=chosen)
    [report] = run_studies(
        [made],
        slots,
        out=out,
        storage=None,
        on_round=lambda study, decisions: None,
        on_stage=lambda study, stage: None,
    )
    if report is None:
        raise RuntimeError(f"the study of {kind} {seed} did not end")
    gates = (report.verdict and report.verdict.gates) or []
    return {
        "market": kind, "seed": seed, "promotable": report.promotable,
        "refused_by": [gate.name for gate in gates if not gate.passed],
        "median_sharpe": report.winner and report.winner.median_sharpe,
        "deflated_sharpe": report.deflated and report.deflated.dsr,
        "pbo": report.overfitting and report.overfitting.pbo,
        "null_p": report.null and report.null.p_value,
        "seconds": report.throughput and report.throughput.seconds,
    }  # fmt: skip


def summarise(rows: Sequence[JsonTable], trials: int, timesteps: int) -> JsonTable:
    """How often the verdict was right."""
    walks, signals = ([row for row in rows if row["market"] == kind] for kind in ("walk", "signal"))
    return {
        "walks": len(walks),
        "walks_refused": sum(not row["promotable"] for row in walks),
        "signals": len(signals),
        "signals_promoted": sum(row["promotable"] for row in signals),
        "trials": trials,
        "timesteps": timesteps,
        "rows": list(rows),
    }
