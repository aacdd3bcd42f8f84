"""The frontier's running numbers against a recount from scratch, and the rule by which candidates
are chosen.
"""

import asyncio
from collections import Counter
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_sites import HOME, chain, html, known, small_task, url

from flatout_crawl.choosers.frontier import LINK, RELEVANCE, Frontier, Groups, Trail, candidates
from flatout_crawl.choosers.session import CrawlSession
from flatout_crawl.reading.facts import general_tag_path, url_shape
from rounding import close_to

FOLDERS = "abcdef"


def wide_site(rng: np.random.Generator, pages: int = 60) -> dict[str, bytes]:
    """Pages with random links to each other in lists of several classes."""
    made = {HOME: html("home", [f"/{FOLDERS[k]}/p{k}" for k in range(6)])}
    for k in range(pages):
        links = [
            f"/{FOLDERS[n % 6]}/p{n}"
            for n in rng.choice(pages, int(rng.integers(1, 9)), replace=False)
        ]
        made[url(f"{FOLDERS[k % 6]}/p{k}")] = html(
            f"page {k}", links, f"text {k}", f"list{rng.integers(3) * 'x'}"
        )
    return made


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 40))
def test_all_numbers_equal_a_recount(seed: int, steps: int) -> None:
    rng = np.random.default_rng(seed)
    relevant = {f"{FOLDERS[k % 6]}/p{k}" for k in rng.choice(60, 15, replace=False)}
    task = small_task(wide_site(rng), relevance=known(*relevant), targets=None)

    async def run() -> None:
        session = CrawlSession(task, 100)
        frontier, read, followed = session.frontier, [], []
        await session.start()
        read.append(session.page)
        for _ in range(steps):
            if session.over:
                break
            number = int(rng.choice(frontier.open_ids()))
            visit = await session.fetch(frontier.links[number].url)
            followed.append((number, visit.earned))
            read.append(session.page)
        in_links = Counter(link for page in read for link in page.urls)
        best = {
            link: max(page.relevance for page in read if link in page.urls) for link in in_links
        }
        taken = [number for number, _ in followed]
        for number, link in enumerate(frontier.links):
            assert frontier.index[link.url] == number
            assert frontier.in_links[number] == in_links[link.url]
            assert frontier.facts[number, RELEVANCE] == best[link.url]
            assert frontier.open[number] == (number not in taken)
        assert frontier.open_count == len(frontier) - len(taken) == len(frontier.open_ids())
        kinds = (
            (frontier.tags, lambda link: general_tag_path(link.tag_path)),
            (frontier.templates, lambda link: url_shape(link.url).template),
        )
        for groups, name in kinds:
            for group, k in groups.names.items():
                members = [n for n, link in enumerate(frontier.links) if name(link) == group]
                earned = [value for n, value in followed if n in members]
                assert groups.open[k] == len(set(members) - set(taken))
                assert groups.followed[k] == len(earned)
                assert groups.mean[k] == pytest.approx(np.mean(earned) if earned else 0)
                assert groups.cautious_mean[k] == pytest.approx(sum(earned) / (len(earned) + 1))
                bonus = np.sqrt(2 * np.log1p(len(followed)) / max(len(earned), 1))
                columns = (groups.mean[k], np.log1p(len(earned)) / 3, bonus)
                assert groups.columns_of(np.array([k]))[:, 0] == pytest.approx(columns)

    asyncio.run(run())


def test_more_groups_than_there_was_room_for() -> None:
    groups = Groups()
    for k in range(300):
        assert groups.number(f"group {k}") == k
        groups.credit(k // 2, 1.0)
    assert groups.followed.tolist() == [2.0] * 150 + [0.0] * 150
    mean, _, bonus = groups.columns_of(np.arange(300))
    assert mean.tolist() == [1.0] * 150 + [0.0] * 150
    best = np.sqrt(2 * np.log1p(300))
    assert bonus == pytest.approx([best / np.sqrt(2)] * 150 + [best] * 150)


def test_trails() -> None:
    trail = Trail().onward(False)
    assert trail == (1, 0, -1)
    assert trail.onward(True) == (2, 1, 0)
    assert trail.onward(True).onward(False).onward(False) == (4, 1, 2)


def test_path_columns_by_hand() -> None:
    task = small_task(chain(5), relevance=known("p1"), targets=None)

    async def run() -> Frontier:
        session = CrawlSession(task, 100)
        await session.start()
        for path in ("p0", "p1", "p2"):
            await session.fetch(url(path))
        return session.frontier

    single = partial(close_to, roundings=16, dtype=np.float32)
    frontier = asyncio.run(run())
    table = frontier.features(np.arange(4), 3)
    columns = {
        name: table[:, LINK.index(name)].tolist()
        for name in ("path_share", "nearness", "depth", "age")
    }
    # p0 stands on home; p1 on p0; p2 on p1, which is relevant; p3 on p2
    assert columns["path_share"] == single([0, 0, 1 / 3, 1 / 4])
    assert columns["nearness"] == single([0, 0, 1, 1 / 2])
    assert columns["depth"] == single([0.2, 0.4, 0.6, 0.8])
    assert columns["age"] == single([np.log(4) / 4, np.log(3) / 4, np.log(2) / 4, 0])
    assert frontier.path_to(3) == [url("p0"), url("p1"), url("p2"), url("p3")]


@pytest.mark.parametrize(
    ("address", "template"),
    [
        ("http://a.lab/", "a.lab/"),
        ("http://a.lab/blog/2024/05/my-first-post.html", "a.lab/blog/#/#/*.html"),
        ("http://a.lab/blog/2023/11/other.HTML", "a.lab/blog/#/#/*.html"),
        ("http://a.lab/user-guide-of-x/page", "a.lab/*/*"),
        ("http://a.lab/list?page=2&sort=a", "a.lab/*?page&sort"),
        ("http://a.lab/docs/", "a.lab/docs/"),
        ("http://a.lab/.hidden", "a.lab/*"),
    ],
)
def test_url_templates(address: str, template: str) -> None:
    assert url_shape(address).template == template


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([4, 8, 16, 33]))
def test_candidates_follow_the_rule(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)

    async def run() -> Frontier:
        session = CrawlSession(small_task(wide_site(rng), relevance=known(), targets=None), 100)
        await session.start()
        for _ in range(int(rng.integers(0, 25))):
            await session.fetch(
                session.frontier.links[int(rng.choice(session.frontier.open_ids()))].url
            )
        return session.frontier

    frontier = asyncio.run(run())
    ids = frontier.open_ids()
    chosen = candidates(frontier, count, np.random.default_rng(seed)).links
    assert len(chosen) == len(set(chosen.tolist())) == min(count, len(ids))
    assert frontier.open[chosen].all()
    scores = dict(zip(ids.tolist(), frontier.scores(ids).tolist(), strict=True))
    order = sorted(scores, key=lambda k: (-scores[k], k))
    half, quarter = (count // 2, count // 4) if len(ids) > count else (len(ids), 0)
    assert chosen[:half].tolist() == order[:half]
    rest = [k for k in ids.tolist() if k not in order[:half]]
    assert chosen[half : half + quarter].tolist() == rest[len(rest) - quarter :]
    again = candidates(frontier, count, np.random.default_rng(seed)).links
    np.testing.assert_array_equal(chosen, again)


def test_representatives_are_of_different_kinds_and_any_member_may_be_one() -> None:
    links = [f"/{FOLDERS[k % 5]}/p{k}" for k in range(200)]

    async def run() -> Frontier:
        session = CrawlSession(small_task({HOME: html("home", links)}, targets=None), 100)
        await session.start()
        return session.frontier

    frontier = asyncio.run(run())
    picked: Counter[int] = Counter()
    for seed in range(300):
        spread = candidates(frontier, 16, np.random.default_rng(seed)).links[12:]
        kinds = frontier.group[spread, 2].tolist()
        assert len(set(kinds)) == 4
        picked.update(spread.tolist())
    assert len(picked) > 150
    assert set(frontier.group[list(picked), 2].tolist()) == set(range(5))
