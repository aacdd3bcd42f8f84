"""Waits and faults: drawn as asked, by shares."""

from collections import Counter
from random import Random

import numpy as np
import pytest

from flatout.errors import SettingsError
from flatout_crawl.sites.latency import (
    NO_LATENCY,
    Latency,
    constant,
    exponential,
    parse_latency,
    stragglers,
)


@pytest.mark.parametrize(
    "latency", [constant(0.05), exponential(0.05), stragglers(0.05, 0.01, 2.0), NO_LATENCY]
)
def test_the_mean_is_what_is_said(latency: Latency) -> None:
    rng = Random(1)
    drawn = [latency(rng) for _ in range(100_000)]
    assert np.mean(drawn) == pytest.approx(latency.mean, rel=0.05)
    assert min(drawn) >= 0


def test_exponential_waits_spread_as_they_should() -> None:
    rng = np.random.default_rng(1)  # NumPy's generators draw as well
    drawn = np.array([exponential(0.1)(rng) for _ in range(50_000)])
    assert np.std(drawn) == pytest.approx(0.1, rel=0.05)
    assert np.mean(drawn > 0.1) == pytest.approx(np.exp(-1), abs=0.01)


def test_stragglers_are_a_share() -> None:
    rng = Random(1)
    drawn = Counter(stragglers(0.05, 0.1, 2.0)(rng) for _ in range(20_000))
    assert set(drawn) == {0.05, 2.0}
    assert drawn[2.0] / 20_000 == pytest.approx(0.1, abs=0.01)


def test_faults_are_shares_of_the_requests() -> None:
    latency, rng = (
        Latency(hang_share=0.1, close_share=0.2, error_share=0.3, busy_share=0.05),
        Random(1),
    )
    drawn = Counter(latency.draw(rng).fault for _ in range(20_000))
    for fault, share in {"hang": 0.1, "close": 0.2, "error": 0.3, "busy": 0.05, "": 0.35}.items():
        assert drawn[fault] / 20_000 == pytest.approx(share, abs=0.015)  # type: ignore[index]


@pytest.mark.parametrize(
    ("text", "latency"),
    [
        ("none", NO_LATENCY),
        ("constant:0.05", constant(0.05)),
        ("exponential:0.1", exponential(0.1)),
        ("stragglers:0.05,0.01,2", stragglers(0.05, 0.01, 2.0)),
    ],
)
def test_spellings(text: str, latency: Latency) -> None:
    assert parse_latency(text) == latency
    assert parse_latency(latency.spelled) == latency


@pytest.mark.parametrize(
    "text", ["fast", "constant", "constant:x", "constant:1,2", "stragglers:1", "exponential:-1", ""]
)
def test_what_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(SettingsError):
        parse_latency(text)


@pytest.mark.parametrize(
    "given",
    [
        {"seconds": -1.0},
        {"hang_share": 0.6, "error_share": 0.6},
        {"straggler_share": 1.5},
        {"busy_share": -0.1},
        {"exponential": True, "straggler_share": 0.1},
    ],
)
def test_impossible_latencies_are_refused(given: dict[str, float]) -> None:
    with pytest.raises(SettingsError):
        Latency(**given)  # type: ignore[arg-type]
