"""Does the verdict tell luck from skill? Whole studies on markets whose truth is known.

On walks nothing can be known of the next bar, whether they rise, fall or stay, so every winner must
be refused; where a signal is planted that pays for its costs many times over, the winner must pass.
"""

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from flatout.bars.panel import Panel
from flatout.bars.synthetic import PlantedSignal
from flatout.bench.known_truths import SYMBOLS, KnownMarket, Luck
from flatout.foreign import JsonTable
from flatout.search.report_model import StudyReport
from flatout.search.run import StudyRequest, prepare, run_studies
from flatout.settings.loading import Resolved
from flatout.settings.tables import Settings
from flatout.workers.devices import choose_devices

BARS = 4000
DIRECTIONS: tuple[Luck, ...] = ("flat", "rising", "falling")
# per bar and unit of signal, which lasts ten bars on average; a round trip costs 54
SIGNAL_BPS = 60.0
SIGNAL = "signal"  # the kind of a market with one
INDICATORS = ("return_1", "roc", "volatility", "extra:signal")
TIMESTEPS = 60_000  # of each trial and split
MANY = 1000  # lanes: more than there are devices
OnVerdict = Callable[[str, JsonTable], None]


def settings_for(trials: int, timesteps: int, seed: int) -> Settings:
    """A small study with the usual space and gates."""
    return Settings.model_validate(
        {
            "features": {"indicators": list(INDICATORS)},
            "train": {"timesteps": timesteps},
            "search": {"trials": trials, "seed": seed},
        }
    )


def plant_signal(seed: int, strength_bps: float = SIGNAL_BPS, bars: int = BARS) -> Panel:
    """A market whose signal earns more than its costs."""
    return PlantedSignal(n_bars=bars, seed=seed, symbols=SYMBOLS, strength_bps=strength_bps).panel()


def draw_walk(truth: Luck, seed: int, bars: int = BARS) -> Panel:
    """A walk of this kind, with the column of a signal that says nothing."""
    walk = KnownMarket(n_bars=bars, seed=seed, symbols=SYMBOLS, truth=truth).panel()
    return replace(walk, extras=plant_signal(seed, bars=bars).extras)


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
    walks: int = 10,
    signals: int = 10,
    trials: int = 32,
    timesteps: int = TIMESTEPS,
    strength_bps: float = SIGNAL_BPS,
    truths: Sequence[Luck] = DIRECTIONS,
    bars: int = BARS,
    on_verdict: OnVerdict = lambda name, row: None,
) -> JsonTable:
    """Verdicts of studies on so many walks of each truth and so many markets with a signal;
    `on_verdict(name, row)` gets each.
    """
    rows: list[JsonTable] = []
    with tempfile.TemporaryDirectory() as out:
        for kind, seed, panel in draw_markets(walks, signals, truths, strength_bps, bars):
            # apart from the others too: made-up markets share their symbols and times
            with own_registry(Path(out) / "registry" / f"{kind}-{seed}"):
                row = judge_market(
                    kind, seed, panel, trials=trials, timesteps=timesteps, out=Path(out)
                )
            rows.append(row)
            on_verdict(f"{kind} {seed}", row)
    return {**summarise(rows, trials, timesteps), "strength_bps": strength_bps, "bars": bars}


def draw_markets(
    walks: int, signals: int, truths: Sequence[Luck], strength_bps: float, bars: int = BARS
) -> Iterator[tuple[str, int, Panel]]:
    """Kind, seed and bars of each market to be judged."""
    for truth in truths:
        for seed in range(walks):
            yield truth, seed, draw_walk(truth, seed, bars)
    for seed in range(signals):
        yield SIGNAL, seed, plant_signal(seed, strength_bps, bars)


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
        "learned_from_oracle": learned_from_oracle(report),
        "pbo": report.overfitting and report.overfitting.pbo,
        "null_p": report.null and report.null.p_value,
        "seconds": report.throughput and report.throughput.seconds,
    }  # fmt: skip


def learned_from_oracle(report: StudyReport) -> bool | None:
    """Whether agents of this budget learn what is there to be learned."""
    control = (report.controls or {}).get("oracle")
    return control.passed if control else None


def summarise(rows: Sequence[JsonTable], trials: int, timesteps: int) -> JsonTable:
    """How often the verdict was right: in all, and of each kind of walk."""
    walks = [row for row in rows if row["market"] != SIGNAL]
    signals = [row for row in rows if row["market"] == SIGNAL]
    refused = {str(row["market"]): 0 for row in walks}
    for row in walks:
        refused[row["market"]] += not row["promotable"]
    return {
        "walks": len(walks),
        "walks_refused": sum(refused.values()),
        "refused": refused,
        "signals": len(signals),
        "signals_promoted": sum(row["promotable"] for row in signals),
        "trials": trials,
        "timesteps": timesteps,
        "rows": list(rows),
    }
