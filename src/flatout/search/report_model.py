"""The report of a study as types: what stands in `report.json`, in the order in which it stands
there.

Every part may be missing: reports of other versions have more or fewer. What is missing is None,
and shown as not computed. Keys that this version does not know stay where they are.
"""

from pydantic import ConfigDict, Field

from flatout.search.assumption_model import AssumptionFacts
from flatout.search.report_part import Count, Curve, Figure, ReportPart


class GateFacts(ReportPart):
    """One gate of the verdict, and what it found."""

    name: str | None = None
    wanted: str | None = None
    found: str | None = None
    passed: bool | None = None
    sentence: str | None = None


class VerdictFacts(ReportPart):
    """Whether the winner may be promoted, and which gates decided that."""

    promotable: bool | None = None
    sentence: str | None = None
    gates: list[GateFacts] | None = None
    gates_hash: str | None = None


class AccountFigures(ReportPart):
    """What an account came to: of a path or of a baseline."""

    sharpe: Figure | None = None
    sortino: Figure | None = None
    total_return: Figure | None = None
    annual_return: Figure | None = None
    max_drawdown: Figure | None = None
    skill_sharpe: Figure | None = None  # of returns in excess of its average weights, held


class WinnerFacts(ReportPart):
    """The winning trial, and its out-of-sample paths."""

    trial: Count | None = None
    params: dict[str, object] | None = None
    paths: list[AccountFigures] | None = None
    median_sharpe: Figure | None = None
    median_skill: Figure | None = None
    seeds_sd: Figure | None = None
    known_rule: str | None = None  # the baseline that knows the edge of a made-up market
    share_of_rule: Figure | None = None  # of that rule's growth


class HoldOutCurves(ReportPart):
    """Equity on the hold-out: of the winner's seeds and of the baselines."""

    time: list[str | None] | None = None
    seeds: list[Curve] | None = None
    baselines: dict[str, Curve] | None = None


class CurveFacts(ReportPart):
    """Equity on the judged bars: of the winner's paths and of the baselines."""

    time: list[str | None] | None = None
    paths: list[Curve] | None = None
    baselines: dict[str, Curve] | None = None
    hold_out: HoldOutCurves | None = None


class NullFacts(ReportPart):
    """The winner's decisions at other times; Sharpe ratios are of skill returns before costs.
    Earlier versions compared with random traders.
    """

    p_value: Figure | None = None
    copies: Count | None = None
    traders: Count | None = None
    turnover: Figure | None = None
    sharpe: Figure | None = None
    sharpes: Curve | None = None


class OverfittingFacts(ReportPart):
    """What became of the best trial of one half of history in the other half."""

    pbo: Figure | None = None
    probability_of_loss: Figure | None = None
    slope: Figure | None = None
    intercept: Figure | None = None
    r2: Figure | None = None
    blocks: Count | None = None
    logits: Curve | None = None
    in_sample: Curve | None = None
    out_of_sample: Curve | None = None


class DeflatedFacts(ReportPart):
    """How much of the winner's Sharpe ratio luck explains."""

    sharpe: Figure | None = None
    psr: Figure | None = None
    dsr: Figure | None = None
    dsr_effective: Figure | None = None
    dsr_dispersion: Figure | None = None
    trials: Count | None = None
    effective: Figure | None = None
    expected_best: Figure | None = None
    min_track_years: Figure | None = None
    min_backtest_years: Figure | None = None
    years: Figure | None = None


class TrialRow(ReportPart):
    """One trial of the study."""

    number: Count | None = None
    state: str | None = None
    value: Figure | None = None
    params: dict[str, object] | None = None


class CostRow(ReportPart):
    """The winner's median path under other costs."""

    factor: Figure | None = None
    sharpe: Figure | None = None
    total_return: Figure | None = None
    skill_sharpe: Figure | None = None


class DelayRow(ReportPart):
    """The winner's median path with orders that come later."""

    bars: Count | None = None
    sharpe: Figure | None = None
    total_return: Figure | None = None
    skill_sharpe: Figure | None = None


class FinalistRow(ReportPart):
    """A finalist's Sharpe ratios from several seeds."""

    trial: Count | None = None
    mean: Figure | None = None
    sd: Figure | None = None
    seeds: Curve | None = None


class DayRow(ReportPart):
    """One day of the winner's median path, or of the hold-out."""

    part: str | None = None
    date: str | None = None
    gain: Figure | None = Field(None, validation_alias="return", serialization_alias="return")
    equity: Figure | None = None
    turnover: Figure | None = None
    trades: Count | None = None
    cost: Figure | None = None


class TradeFacts(ReportPart):
    """How much was traded, and what it cost."""

    count: Count | None = None
    turnover_per_bar: Figure | None = None
    costs_per_year: Figure | None = None
    exposure: Figure | None = None
    days: list[DayRow] | None = None


class ControlFacts(ReportPart):
    """A market in which the answer is known."""

    sharpe: Figure | None = None
    probability: Figure | None = None  # that the true Sharpe ratio is above zero
    sentence: str | None = None
    passed: bool | None = None


class ConstantFacts(ReportPart):
    """Whether the winner looks at the market at all."""

    model_config = ConfigDict(extra="forbid")
    passed: bool | None = None
    sentence: str | None = None
    active_share: Figure | None = None  # of the equity, moved about its average weights
    probability: Figure | None = None  # that it moves next to nothing about

    @property
    def sharpe(self) -> None:
        """Nothing is earned in this check."""


class ThroughputFacts(ReportPart):
    """How much time the study took."""

    steps: Count | None = None
    seconds: Figure | None = None
    steps_per_s: Figure | None = None
    trials_per_hour: Figure | None = None
    occupancy: Figure | None = None


class StudyReport(ReportPart):
    """All that a study's page shows."""

    flatout: str | None = None  # the version
    study: str | None = None
    created: str | None = None
    verdict: VerdictFacts | None = None
    assumptions: AssumptionFacts | None = None
    winner: WinnerFacts | None = None
    curves: CurveFacts | None = None
    baselines: dict[str, AccountFigures] | None = None
    null: NullFacts | None = None
    overfitting: OverfittingFacts | None = None
    deflated: DeflatedFacts | None = None
    importance: dict[str, Figure | None] | None = None  # by setting
    trials: list[TrialRow] | None = None
    costs: list[CostRow] | None = None
    delays: list[DelayRow] | None = None
    finalists: list[FinalistRow] | None = None
    reward_terms: dict[str, Figure | None] | None = None
    trades: TradeFacts | None = None
    controls: dict[str, ConstantFacts | ControlFacts] | None = None
    throughput: ThroughputFacts | None = None
    files: dict[str, str | None] | None = None

    @property
    def promotable(self) -> bool:
        """Whether the verdict is that the winner may be promoted."""
        return self.verdict is not None and self.verdict.promotable is True

    @property
    def judged_trials(self) -> int | None:
        """How many trials the study had when the report was made."""
        counts = self.assumptions and self.assumptions.trials
        return counts.this_study if counts else None
