"""What agents make of the two controls within a study's own budget. They are trained before the
first trial: a study whose agents cannot learn says so at once, not by refusing its winner.
"""

from collections.abc import Mapping

import numpy as np

from flatout.arrays import NumpyArray
from flatout.errors import RunError
from flatout.evaluation import metrics
from flatout.evaluation.deflation import probabilistic_sharpe
from flatout.evaluation.paths import finite
from flatout.evaluation.reference import run_baselines
from flatout.evaluation.skill import make_timeline, skill_returns, sum_by_part
from flatout.foreign import finite as is_finite
from flatout.foreign import read_tensors
from flatout.market.market import build_market
from flatout.runs import write_arrays
from flatout.search.callbacks import OnNote, OnStageText
from flatout.search.controls import NOISE, ORACLE, Foresight, log_gain_of_next_bar
from flatout.search.finalist_results import CURE, Floats, conditions_of, control_shape
from flatout.search.market_study import LOG_RETURN, TERMS, MarketStudy
from flatout.search.report_model import ControlFacts
from flatout.search.space import middle_value
from flatout.search.spare_agents import SpareAgent, train_agents
from flatout.search.spare_lanes import SpareLanes
from flatout.search.study import Study

FILE = "controls.safetensors"
SURE = 0.95  # probability that what was earned is more than luck
CLEAR = 0.2  # of what a rule earns that reads tomorrow's prices
LEARNED = "learned from tomorrow's prices{share}"
UNLEARNED = (
    "could not learn even with tomorrow's prices{share}: give more train.timesteps, or larger "
    "learning rates"
)


def try_controls(lanes: SpareLanes, on_stage: OnStageText, on_note: OnNote) -> None:
    """Train agents on the controls, and say so if even tomorrow's prices teach them nothing."""
    study = lanes.study
    traces = split_controls(study, train_controls(lanes, on_stage))
    oracle = judge_control(study.market, ORACLE, traces[ORACLE])
    if not oracle.passed:
        on_note(
            study,
            f"its agents {oracle.sentence}. The trials begin all the same, but a winner that is "
            "refused may only have been taught too little.",
        )


def train_controls(lanes: SpareLanes, on_stage: OnStageText) -> Floats:
    """The traces of agents on both controls, (agent, term or weight, block, bar): as they were
    written down, or trained now, with what lies in the middle of all that trials may try.
    """
    study = lanes.study
    if (study.folder / FILE).exists():
        return read_controls(study)
    on_stage("controls: a market without edge, and one with tomorrow among the features")
    seeds = range(study.market.settings.search.final_seeds)
    middle = {name: middle_value(knob) for name, knob in study.space.items()}
    agents = [SpareAgent(name, middle, seed) for name in (NOISE, ORACLE) for seed in seeds]
    trained = train_agents(lanes, agents, conditions_of(study)[:1])
    traces = np.stack([agent.traces[0] for agent in trained]).astype(np.float32)
    write_arrays(study.folder / FILE, {"controls": traces})
    return traces


def read_controls(study: Study) -> Floats:
    """The traces as they were written down; refused if they are not of this study."""
    path = study.folder / FILE
    arrays: Mapping[str, NumpyArray] = read_tensors(path, RunError, CURE).arrays
    found = arrays.get("controls", np.zeros(0))
    if found.dtype != np.float32 or found.shape != control_shape(study):
        raise RunError(
            f"{path}: controls are {found.dtype} of shape {found.shape}, not float32 of shape "
            f"{control_shape(study)}; {CURE}"
        )
    if not is_finite(found):
        raise RunError(f"{path}: controls holds what is no number; {CURE}")
    return found


def split_controls(study: Study, traces: Floats) -> dict[str, Floats]:
    """By name of the control: (seed, term or weight, block, bar)."""
    seeds = study.market.settings.search.final_seeds
    return {NOISE: traces[:seeds], ORACLE: traces[seeds:]}


def judge_control(market: MarketStudy, name: str, traces: Floats) -> ControlFacts:
    """What agents earned in a market whose answer is known, and whether that is right: nothing but
    luck on noise, and with an oracle a good part of what a rule earns that reads it.
    """
    control, judged = market.stretches[name], traces[:, :, 0]
    [block] = control.test
    returns = skill_returns(
        np.expm1(judged[:, LOG_RETURN, : block.length].astype(np.float64)),
        sum_by_part(judged[:, TERMS:], block.length),
        make_timeline(control.closes, [block]),
    )
    known = float(np.median([probabilistic_sharpe(path) for path in returns]))
    found = known >= SURE
    if name == NOISE:
        passed = not found
        sentence = (
            "found an edge where there is none" if found else "found nothing where there is nothing"
        )
    else:
        earned, most = float(np.median(returns.mean(axis=-1))), earn_by_oracle(market)
        share = f" ({max(earned, 0.0) / most:.0%} of what a rule earns that reads them)"
        passed = found and earned >= CLEAR * most
        sentence = LEARNED if passed else UNLEARNED
        sentence = sentence.format(share=share if most > 0 else "")
    return ControlFacts(
        sharpe=finite(float(np.median(metrics.sharpe(returns, market.panel.bars_per_year)))),
        probability=known,
        sentence=sentence,
        passed=passed,
    )


def earn_by_oracle(market: MarketStudy) -> float:
    """The mean skill return of a rule that reads tomorrow's prices, on the bars that judge the
    oracle control; 0 where costs leave it nothing.
    """
    control, settings = market.stretches[ORACLE], market.settings.market
    traded = build_market(market.panel, market.settings, control.fitted, market.features_of(ORACLE))
    costs = settings.costs
    move = 2e-4 * (costs.tiers[0].taker_bps + costs.half_spread_bps)
    rule = Foresight(log_gain_of_next_bar(market.panel, settings.fill), move)
    found = run_baselines(traded, control.test, {ORACLE: rule})[ORACLE]
    return max(float(found.skill.mean()), 0.0)
