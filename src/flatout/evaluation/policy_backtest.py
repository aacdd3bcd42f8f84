"""One policy's backtest as people want it: beside the baselines, beside luck, with its files."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from flatout.bars.bar_size import bar_name
from flatout.bars.panel import Panel
from flatout.errors import RulesError
from flatout.evaluation.assumptions import describe_market
from flatout.evaluation.backtest import History
from flatout.evaluation.baselines import BASELINES, Policy
from flatout.evaluation.comparison import Comparison, compare
from flatout.evaluation.picture import draw_equity, write_picture
from flatout.evaluation.trades import write_ledger
from flatout.foreign import shorten_repr, to_path
from flatout.market.market import Market
from flatout.runs import create_run, write_json
from flatout.settings.loading import Resolved
from flatout.terminal import progress_bar

Period = tuple[str | None, str | None]  # first decision at or after, stop before; UTC


@dataclass(frozen=True)
class BacktestResult:
    """What a policy would have earned on some bars."""

    policy: str
    source: str  # where the bars come from
    panel: Panel
    first: int  # bar of the first decision
    stop: int  # the last bar traded is the one before
    comparison: Comparison  # histories of the policy, of the baselines, and of luck
    resolved: Resolved  # the settings it was run under
    seed: int  # of the moves of its copies
    bundle: Mapping[str, Any] = field(default_factory=dict)  # of a saved policy: where it is from

    def __repr__(self) -> str:
        """One line: what the policy returned, on which bars, and how far luck goes."""
        share = self.comparison.chosen.equity[-1, 0] - 1
        times = " to ".join(str(self.panel.time[k])[:16] for k in (self.first + 1, self.stop - 1))
        return (
            f"BacktestResult({self.policy!r}: return {share:+.1%}, p-value against copies at other "
            f"times {self.comparison.p_value():.3f}; {self.source}, {times} UTC{self.remark})"
        )

    @property
    def remark(self) -> str:
        """What must be said wherever the figures are: that other symbols taught the policy."""
        said = self.bundle.get("remark")
        return f"; {said}" if said else ""

    @property
    def metrics(self) -> dict[str, dict[str, float | None]]:
        """The figures of the policy and of the baselines, annualised where their names say so."""
        histories: dict[str, History] = {
            self.policy: self.comparison.chosen,
            **self.comparison.baselines,
        }
        return {name: one.metrics(self.panel.bars_per_year) for name, one in histories.items()}

    @property
    def luck(self) -> dict[str, float]:
        """How the policy stands among copies of itself that decide at other times."""
        luck = self.comparison.luck
        low, middle, high = np.quantile(luck.equity[-1] - 1, [0.05, 0.5, 0.95])
        return {
            "copies": luck.equity.shape[1],
            "annual_turnover": float(luck.turnover.mean() * self.panel.bars_per_year),
            "return_5": float(low),
            "return_50": float(middle),
            "return_95": float(high),
            "p_value": self.comparison.p_value(),
        }

    def facts(self) -> dict[str, Any]:
        """The result as plain values, as `metrics.json` holds them."""
        panel, fills = self.panel, self.comparison.chosen.fills
        found: dict[str, Any] = {
            "policy": self.policy,
            "source": self.source,
            "fingerprint": panel.fingerprint,
            "symbols": list(panel.symbols),
            "bar": bar_name(panel.bar_seconds),
            "bars_per_year": panel.bars_per_year,
            "trading_year": panel.trading_year.describe(),
            "from": str(panel.time[self.first + 1]),
            "to": str(panel.time[self.stop - 1]),
            "bars": self.stop - self.first - 1,
            "assumptions": describe_market(self.resolved.settings.market),
            "metrics": self.metrics,
            "luck": self.luck,
            "fills": sum(int(np.count_nonzero(fill.units)) for fill in fills),
        }
        return {**found, "bundle": dict(self.bundle)} if self.bundle else found

    def write(self, out: Path | str = "runs") -> Path:
        """A new run folder in `out` with `ledger.csv`, `metrics.json` and `equity.html`, what
        matters most first.
        """
        about = {"source": self.source, "fingerprint": self.panel.fingerprint, "seed": self.seed}
        settings = self.resolved.settings.market
        run = create_run(to_path(out, "`out`"), f"backtest-{self.policy}", self.resolved, about)
        fills = self.comparison.chosen.fills
        write_ledger(run / "ledger.csv", self.panel, fills, settings.capital)
        write_json(run / "metrics.json", {**self.facts(), "run": str(run)})
        subtitle = f"{self.source} — {describe_market(settings)}{self.remark}"
        figure = draw_equity(self.comparison, self.panel, self.policy, subtitle)
        write_picture(run / "equity.html", figure)
        return run


def backtest_policy(
    policy: Policy,
    name: str,
    market: Market,
    *,
    source: str,
    resolved: Resolved,
    period: Period = (None, None),
    seed: int = 0,
    quiet: bool = False,
    bundle: Mapping[str, Any] | None = None,
) -> BacktestResult:
    """Run a policy through the bars of a market, with the baselines and copies of it
    that decide at other times beside it.
    """
    first, stop = find_rows(market.panel, period, market.fitted.recipe.count_warmup(market.panel))
    others = {key: value for key, value in BASELINES.items() if key not in (name, "random")}
    with progress_bar(quiet) as bar:
        task = bar.add_task("backtest", total=2 * max(stop - first - 1, 0))
        comparison = compare(
            market, policy, others, first, stop, seed=seed, progress=lambda _: bar.advance(task)
        )
    return BacktestResult(
        policy=name,
        source=source,
        panel=market.panel,
        first=first,
        stop=stop,
        comparison=comparison,
        resolved=resolved,
        seed=seed,
        bundle=bundle or {},
    )


def find_rows(panel: Panel, period: Period, warm: int) -> tuple[int, int]:
    """First decision bar and stop for UTC times, both optional."""
    since, until = period
    first, stop = warm, panel.n_bars
    if since is not None:
        first = max(warm, int(np.searchsorted(panel.time, parse_time("`since`", since))))
    if until is not None:
        stop = int(np.searchsorted(panel.time, parse_time("`until`", until)))
    if (since or until) and not first < stop - 1:
        given = (("`since`", since), ("`until`", until))
        asked = " ".join(f"{name} {text}" for name, text in given if text)
        raise RulesError(
            f"{asked} leaves no bar to trade: the features are warm from "
            f"{panel.time[min(warm, panel.n_bars - 1)]}, the last bar is {panel.time[-1]}"
        )
    return first, stop


def parse_time(name: str, text: str) -> np.datetime64:
    """The time that an argument names; without a zone it is UTC."""
    try:
        time = datetime.fromisoformat(str(text))
        time = time.astimezone(UTC).replace(tzinfo=None) if time.tzinfo else time
    except (ValueError, OverflowError):
        given = shorten_repr(text)
        raise RulesError(
            f"{name} {given} is not a time: write it as 2024-05-01 or 2024-05-01T12:00"
        ) from None
    return np.datetime64(time, "us")
