"""Peers are judged as our own learners are: the same policy earns the same either way."""

import json
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

from flatout.bench import learning_peers, learning_quality
from flatout.bench.learning_peers import (
    FINRL,
    LearningPeer,
    PeerLimits,
    find_learning_peers,
    follow_model,
)
from flatout.bench.learning_quality import (
    LEARNERS,
    TAUGHT,
    Ground,
    describe,
    make_ground,
    make_student,
    trade_judged,
    trade_outside,
)
from flatout.bench.learning_speed import population_training
from flatout.cli.main import main
from flatout.market.orders import weights_action
from flatout.policies.network import Network, new_network
from rounding import assert_close

BARS = learning_quality.EPISODE


@cache
def ground() -> Ground:
    return make_ground(20.0, every_rule=False)


def assert_same_trades(ours: Any, theirs: Any) -> None:
    """What accounts earned and traded until each bar, both ways. The kernel is compiled in another
    way and rounds elsewhere; what was summed is of the size of the equity, which is about 1.
    """
    for one, other in zip(ours, theirs, strict=True):
        assert np.shape(one) == np.shape(other) == (BARS, learning_quality.JUDGES)
        assert_close(
            np.cumsum(np.asarray(other, np.float64), axis=0),
            np.cumsum(np.asarray(one, np.float64), axis=0),
            roundings=20 * BARS,
            size=1.0,
            dtype=np.float32,
        )
    assert describe(ground(), *ours).turnover > 0


@pytest.mark.long
def test_a_constant_mix_earns_the_same_outside() -> None:
    shares = np.full((learning_quality.ASSETS, 1), 0.1)
    action = np.tile(weights_action(shares, np).T, (learning_quality.JUDGES, 1))
    ours = trade_judged(ground(), lambda state: jnp.asarray(action, jnp.float32))
    assert_same_trades(ours, trade_outside(ground(), lambda seen, bars: action))


@pytest.mark.long
@pytest.mark.parametrize("learner", ["ppo", "pathwise per_asset"])
def test_a_network_earns_the_same_outside(learner: str) -> None:
    """The network sees what `trade_outside` shows; nothing else is known of the account."""
    student = make_student(ground(), LEARNERS[learner], 10_000)
    network: Network = new_network(student.program.sizes, 3, -1.0)
    ours = trade_judged(ground(), partial(student.decide, ground(), network))
    assert_same_trades(
        ours, trade_outside(ground(), lambda seen, bars: student.choose(network, seen))
    )


@pytest.mark.long
def test_accounts_trade_the_bars_that_judge_in_order() -> None:
    asked = []

    def act(seen: Any, bars: Any) -> Any:
        asked.append(bars)
        assert seen.shape == (learning_quality.JUDGES, ground().market.observation_size)
        return np.zeros((len(bars), ground().market.action_size))

    trade_outside(ground(), act)
    assert asked[0].min() >= TAUGHT and (np.diff(asked, axis=0) == 1).all() and len(asked) == BARS


def test_peers_learn_on_the_bars_that_teach_only() -> None:
    segments = ground().lesson.rules.segments
    assert (int(segments.first[0]), int(segments.stop[0])) == (
        int(ground().taught.segments.first[0]),
        TAUGHT,
    )
    assert int(segments.length) == int(ground().taught.segments.length) == BARS


@pytest.mark.long
@pytest.mark.parametrize("name", ["sb3_plain", "sbx_plain"])
def test_a_peer_is_judged_between_updates_until_its_limits(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip({"sb3_plain": "stable_baselines3", "sbx_plain": "sbx"}[name])
    model = getattr(learning_peers, name)(ground().lesson, 1, n_steps=16, n_epochs=1)
    monkeypatch.setattr(learning_quality, "EPISODE", 4)
    points = list(follow_model(ground(), model, PeerLimits(300, 60.0)))
    assert [point["samples"] for point in points] == [128, 256]
    assert 0 < points[0]["seconds"] < points[1]["seconds"]
    assert points[0].keys() == {"samples", "seconds", "growth_bps", "sharpe", "turnover"}
    assert model.num_timesteps == 256
    assert len(list(follow_model(ground(), model, PeerLimits(300, 0.0)))) == 1  # out of time


@pytest.mark.long
@pytest.mark.parametrize("name", ["sb3_plain", "sbx_plain"])
def test_what_was_learned_while_compiling_is_forgotten(name: str) -> None:
    pytest.importorskip({"sb3_plain": "stable_baselines3", "sbx_plain": "sbx"}[name])
    model = getattr(learning_peers, name)(
        ground().lesson, 1, n_steps=16, n_epochs=2, learning_rate=0.01
    )
    seen = np.random.default_rng(0).normal(size=(5, ground().market.observation_size))
    act = learning_peers.act_by(model)
    first = act(seen.astype(np.float32), np.zeros(5))
    learning_peers.forget_after(model)
    assert (act(seen.astype(np.float32), np.zeros(5)) == first).all()
    model.learn(128)
    assert (act(seen.astype(np.float32), np.zeros(5)) != first).any()


def test_what_is_not_installed_is_said_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = LearningPeer("no_such_trainer", 1000, learning_peers.sb3_plain)
    monkeypatch.setattr(learning_peers, "PEERS", {"somebody": unknown})
    found = find_learning_peers()
    assert found.follow == {} and found.missing.keys() == {"somebody", FINRL}
    assert all(why.startswith("not installed: ") for why in found.missing.values())


def test_the_samples_asked_for_are_every_peers(tmp_path: Path) -> None:
    found = find_learning_peers(5000, 7.0, finrl=tmp_path / "python")
    assert set(found.limits.values()) == {PeerLimits(5000, 7.0)}
    assert found.follow.keys() == found.limits.keys() and FINRL in found.follow
    usual = find_learning_peers().limits
    assert {name: limit.samples for name, limit in usual.items()} == {
        name: peer.samples for name, peer in learning_peers.PEERS.items() if name in usual
    }


def test_populations_are_of_both_learners() -> None:
    own, flat = (
        population_training(ground(), LEARNERS[name], 3) for name in ("pathwise per_asset", "ppo")
    )
    assert len(own.lanes) == len(flat.lanes) == 3
    assert own.program.layout and not flat.program.layout
    assert flat.lanes[0].hidden == (64, 64) and own.lanes[0].hidden == (32, 32)


@pytest.mark.long
def test_the_command_prints_what_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """With peers that learn next to nothing, and without measuring the speed of populations."""
    pytest.importorskip("stable_baselines3")
    small = {
        "sb3 ppo, its defaults": LearningPeer(
            "stable_baselines3", 128, partial(learning_peers.sb3_plain, n_steps=16)
        )
    }
    speeds = {"pathwise_steps_per_s": 20_000, "ppo_steps_per_s": 40_000, "population": "2 agents"}
    monkeypatch.setattr(learning_peers, "PEERS", small)
    monkeypatch.setattr("flatout.bench.learning_speed.measure_populations", lambda *_, **__: speeds)
    words = ["bench", "learn", "--learner", "pathwise per_asset", "--samples", "2048"]
    found = json.loads(CliRunner().invoke(main, [*words, "--json"]).stdout)
    rows = {"pathwise per_asset", "sb3 ppo, its defaults"}
    for key in ("seconds_to_80", "samples_to_80", "growth_at_100k"):
        assert found[key].keys() == rows
    assert found["peers"] == {"sb3 ppo, its defaults": {"samples": 128, "seconds": 180.0}}
    assert found["not_measured"].keys() == {FINRL}
    assert {"ratio_seconds", "ratio_samples", "ratio_is_bound"} < found.keys()
    assert found["pathwise_steps_per_s"] == 20_000 and found["ppo_steps_per_s"] == 40_000

    asked: list[Any] = []
    monkeypatch.setattr(
        learning_quality,
        "measure_learning",
        lambda *_, peers, **__: (
            asked.append(peers),
            {**found, "ratio_seconds": 7.5, "ratio_samples": 2.0},
        )[1],
    )
    wide = {"COLUMNS": "160"}
    text = CliRunner().invoke(main, words, env=wide).output
    assert "finrl eiie: not installed: --finrl PYTHON" in text
    assert "takes 7.50 times as many seconds" in text and "20,000 samples a second" in text
    assert CliRunner().invoke(main, [*words, "--no-peers"], env=wide).exit_code == 0
    assert asked[0].keys() == {"sb3 ppo, its defaults"} and asked[1] is None
