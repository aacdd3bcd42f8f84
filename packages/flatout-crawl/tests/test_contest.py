"""The verdict on a learned policy, and the recordings it may be reached on."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from recorded_sites import record, site

from flatout.errors import RunError, SettingsError
from flatout_crawl.choosers.baselines import BestFirst
from flatout_crawl.choosers.evaluate import CrawlRun, crawl
from flatout_crawl.reading.relevance import KnownTargets, Matches
from flatout_crawl.runs.archive import Archive
from flatout_crawl.runs.archive_task import Band, archive_at, band, beside, read_archive
from flatout_crawl.runs.contest import (
    RIVALS,
    contest,
    curves,
    field_of_recording,
    field_of_site,
    verdict,
)
from flatout_crawl.sites.site import SiteSettings, generate


def run_of(chooser: str, task: int, needed: int | None, budget: int = 100) -> CrawlRun:
    return CrawlRun(
        chooser=chooser, task=(f"site {task}"), seed=0, budget=budget, requests=budget, found=9,
                              targets=10, recall=0.9,
        auc=0.5, requests_to_50=10, requests_to_90=needed, site_share_to_50=None,
        site_share_to_90=None, wasted_mb=0.0,
        reward=0.0, curve=(0, 5, 9),
    )  # fmt: skip


def runs_of(own: list[int | None], **others: list[int | None]) -> list[CrawlRun]:
    """Runs of the learned policy and its rivals, one per site; rivals not named need 80."""
    needed = {"learned": own} | {
        rival: others.get(rival.replace("-", "_"), [80] * len(own)) for rival in RIVALS
    }
    return [
        run_of(name, task, count)
        for name, counts in needed.items()
        for task, count in enumerate(counts)
    ]


def test_a_policy_that_beats_all_of_them_is_told_so() -> None:
    found = verdict(runs_of([40, 42, 38, 41, 44, 39]))
    assert found["beats"] is True
    assert found["sentence"] == (
        "The learned policy beats best-first, tag-path-bandit and kind-bandit: it needs 41 "
        "requests to find 90 % of the targets, best-first 80, tag-path-bandit 80 and kind-bandit "
        "80 (6 held-out sites, 1 seed; each difference is beyond chance at 95 %)."
    )


def test_one_rival_that_is_as_good_is_enough_to_lose() -> None:
    found = verdict(runs_of([40, 42, 38, 41, 44, 39], kind_bandit=[41, 40, 39, 44, 38, 42]))
    assert found["beats"] is False
    assert found["sentence"].startswith(
        "The learned policy does NOT beat kind-bandit on requests to 90 %"
    )
    assert [duel["won"] for duel in found["duels"]] == [True, True, False]


def test_to_reach_the_share_less_often_is_to_lose() -> None:
    """Where 90 % are not reached, the budget stands in, and that is less than it would have
    taken.
    """
    found = verdict(runs_of([10, 10, 10, 10, 10, None], best_first=[99, 99, 99, 99, 99, 99]))
    assert found["duels"][0]["difference"]["high"] < 0
    assert found["beats"] is False
    assert "90 % was reached in 83% of the crawls, by the other in 100%" in found["sentence"]


def test_a_policy_that_never_gets_there_is_told_so() -> None:
    assert "the learned policy never reached 90 %" in verdict(runs_of([None] * 6))["sentence"]


def test_few_sites_say_little() -> None:
    assert "says little about others" in verdict(runs_of([40, 41]))["sentence"]


def test_curves_are_means_over_sites_within_their_band() -> None:
    runs = [replace(run_of("learned", task, 3, budget=6), curve=(0, task, 10)) for task in range(4)]
    found = curves(runs)
    assert found["requests"] == [1, 2, 3, 4, 5, 6]
    learned = found["choosers"]["learned"]
    assert learned["mean"] == [0, 0.15, 1, 1, 1, 1]
    assert learned["low"][1] < 0.15 < learned["high"][1]


def test_a_contest_on_a_made_up_site_has_everybody_in_it() -> None:
    crawls: list[tuple[str, str]] = []
    quick = generate(SiteSettings(seed=5, pages=120, hazards=False))  # contests wait for slow pages
    found = contest(
        lambda seed: BestFirst(),
        [field_of_site(quick)],
        budget=40,
        on_crawl=lambda *now: crawls.append(now),
    )
    names = [row["chooser"] for row in found["choosers"]]
    assert set(names) >= {"learned", "oracle", "random", *RIVALS}
    assert names[0] == "oracle"
    assert len(crawls) == len(names)
    assert found["verdict"]["beats"] is False  # it is best-first itself
    assert next(iter(found)) == "verdict"
    json.dumps(found, allow_nan=False)


def test_a_recording_knows_its_targets_and_an_oracle_finds_them_all(tmp_path: Path) -> None:
    made = site()
    path = record(made, tmp_path / "archive.sqlite")
    with Archive(archive_at(tmp_path), read_only=True) as archive:
        recorded = read_archive(archive, made.seed_url, KnownTargets(made.targets))
        assert {made.resolve(url) for url in recorded.targets} == made.targets
        field = field_of_recording(recorded)
        assert field.targets == len(made.targets)
        session = asyncio.run(crawl(recorded.task, field.oracle.make(recorded.task, 0), 100))
        assert session.recall == 1.0
        bands = beside(recorded.task, 20, 0.5, {"random": 3, "best-first": 1})
        assert all(len(one.mean) == 20 for one in bands.values())
        assert bands["best-first"].low == bands["best-first"].high
        with pytest.raises(RunError, match=r"none of the .* is relevant: check what is looked for"):
            read_archive(archive, made.seed_url, Matches("no page says this"))
        with pytest.raises(
            RunError, match=r"0 recorded pages can be reached from http://x.lab/.*site5.lab"
        ):
            read_archive(archive, "http://x.lab/", Matches("x"))
        with pytest.raises(SettingsError, match="no URL to begin at"):
            read_archive(archive, "ftp://x", Matches("x"))
    assert archive_at(path) == path


def test_bands_hold_their_last_value() -> None:
    assert band([[1, 2], [1, 1, 1, 4, 9]], 4) == Band([1, 1.5, 1.5, 3], [1, 1, 1, 2], [1, 2, 2, 4])
