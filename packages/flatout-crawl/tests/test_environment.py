"""The crawl as an environment: spaces, masks, ends, and what infos say."""

import asyncio
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import flatten
from hypothesis import given, settings
from hypothesis import strategies as st
from small_sites import HOME, PAGES, FixedFetcher, chain, html, known, small_task, url

from flatout.errors import SettingsError
from flatout.slow_envs.async_env import AsyncEnv, waits
from flatout_crawl.choosers.environment import ActionRefused, FocusedCrawl, SiteUnreachable
from flatout_crawl.choosers.observation import GLOBAL, LINK, flatten_observation, observation_size
from flatout_crawl.net.fetching import Answer
from rounding import close_to


def played(
    env: FocusedCrawl, choose: Any, seed: int = 0, most: int = 500
) -> list[tuple[Any, float, bool, bool, Any]]:
    """The steps of an episode; `choose` gets observation and step."""

    async def run() -> list[tuple[Any, float, bool, bool, Any]]:
        observation, _ = await env.reset(seed=seed)
        steps: list[tuple[Any, float, bool, bool, Any]] = []
        while len(steps) < most and not (steps and (steps[-1][2] or steps[-1][3])):
            steps.append(await env.step(choose(observation, len(steps))))
            observation = steps[-1][0]
        return steps

    return asyncio.run(run())


def link_to(env: FocusedCrawl, path: str) -> int:
    """The action that follows this link."""
    assert env.session is not None
    assert env._seen is not None
    return int(np.flatnonzero(env._seen.links == env.session.frontier.index[url(path)])[0])


def single(number: float, roundings: int = 16) -> Any:
    """A number that was worked out or kept in single precision."""
    return close_to(number, roundings=roundings, dtype=np.float32)


def test_it_is_an_environment_that_waits() -> None:
    env = FocusedCrawl([small_task()])
    assert isinstance(env, AsyncEnv)
    assert waits(env)


def test_names_and_sizes() -> None:
    assert (len(GLOBAL), len(LINK)) == (16, 28)
    assert len(set(GLOBAL) | set(LINK)) == 44
    assert FocusedCrawl([small_task()]).observation_space["links"].shape == (64, 28)  # type: ignore[index]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([4, 7, 16, 64]), st.booleans(), st.integers(1, 9))
def test_every_observation_is_in_its_space_and_the_mask_is_right(
    seed: int, count: int, stop: bool, wide: int
) -> None:
    task = small_task(chain(120, wide), targets=None) if wide > 1 else small_task()
    env = FocusedCrawl([task], candidates=count, budget=30, stop_action=stop)
    rng = np.random.default_rng(seed)

    def choose(observation: Any, step: int) -> int:
        check(observation)
        assert env.session is not None
        assert observation["mask"][:count].sum() == min(count, env.session.frontier.open_count)
        assert observation["mask"][count] == stop
        assert not observation["links"][observation["mask"][:count] == 0].any()
        return int(rng.choice(np.flatnonzero(observation["mask"][:count])))

    def check(observation: Any) -> None:
        assert env.observation_space.contains(observation)
        assert np.isfinite(observation["links"]).all()
        flat = flatten(env.observation_space, observation)
        np.testing.assert_array_equal(flatten_observation(observation), flat)
        assert flat.shape == (observation_size(count),)

    steps = played(env, choose, seed)
    check(steps[-1][0])
    assert steps[-1][2]


def test_the_first_choice_is_that_of_the_best_score() -> None:
    env = FocusedCrawl([small_task()], candidates=8)

    async def run() -> None:
        observation, _ = await env.reset(seed=1)
        assert env.session is not None
        assert link_to(env, "solar") == 0
        assert observation["links"][0, LINK.index("anchor_similarity")] == single(1, 512)
        observation, *_ = await env.step(link_to(env, "solar"))
        assert observation["global"][GLOBAL.index("last_reward")] == single(-0.03)
        scores = env.session.frontier.scores(env._seen.links)  # type: ignore[union-attr]
        assert (np.diff(scores) <= 0).all()

    asyncio.run(run())


def test_columns_of_a_link_by_hand() -> None:
    env = FocusedCrawl([small_task()], candidates=16)

    async def run() -> None:
        await env.reset(seed=0)
        for path in ("solar", "solar/a"):
            observation, *_ = await env.step(link_to(env, path))
        columns = dict(
            zip(LINK, observation["links"][link_to(env, "solar/b")].tolist(), strict=True)
        )
        news = dict(zip(LINK, observation["links"][link_to(env, "news")].tolist(), strict=True))
        assert columns["depth"] == single(2 / 5)  # home, hub
        assert columns["same_directory"] == 0
        assert columns["zone_main"] == columns["type_page"] == 1
        assert columns["tag_mean"] == single(env.session.last.earned)  # type: ignore[union-attr]
        assert columns["tag_count"] == single(np.log(2) / 3)
        assert columns["in_links"] == single(np.log(2) / 3)
        assert news["in_links"] == single(np.log(3) / 3)  # home, hub
        assert columns["age"] == single(np.log(2) / 4)  # found at step 1 of 2
        assert news["age"] == single(np.log(3) / 4)
        assert news["tag_mean"] == 0

    asyncio.run(run())


def test_an_episode_tells_its_outcome_at_the_end_only() -> None:
    env = FocusedCrawl([small_task()])
    path = iter(["news", "solar", "solar/a", "solar/b"])
    steps = played(env, lambda observation, step: link_to(env, next(path)))
    *early, (_, _, terminated, truncated, info) = steps
    assert (terminated, truncated) == (True, False)  # all targets found
    assert all("episode" not in step[4] for step in early)
    assert info["episode"]["l"] == 4
    assert info["episode"]["r"] == pytest.approx(sum(step[1] for step in steps))
    assert (info["recall"], info["harvest"]) == (1.0, (0, 0, 0, 1, 2))
    assert (info["url"], info["status"], info["targets_found"], info["requests"]) == (
        url("solar/b"),
        200,
        2,
        5,
    )
    assert info["relevance"] > 0.5


def test_the_budget_ends_it_exactly() -> None:
    env = FocusedCrawl([small_task(chain(100), targets=None)], budget=9)
    steps = played(env, lambda observation, step: 0)
    assert len(steps) == 8
    assert steps[-1][4]["requests"] == 9
    assert [step[2] for step in steps] == [False] * 7 + [True]
    assert steps[-1][0]["global"][GLOBAL.index("budget_left")] == 0


def test_a_task_may_have_a_budget_of_its_own() -> None:
    env = FocusedCrawl([small_task(chain(100), targets=None, budget=4)], budget=9)
    assert played(env, lambda observation, step: 0)[-1][4]["requests"] == 4


def test_stopping_ends_it_and_costs_nothing() -> None:
    env = FocusedCrawl([small_task()])
    ((_, reward, terminated, truncated, info),) = played(env, lambda observation, step: 64)
    assert (reward, terminated, truncated, info["url"], info["episode"]) == (
        0,
        True,
        False,
        "",
        {"r": 0.0, "l": 0},
    )


def test_no_link_left_ends_it() -> None:
    env = FocusedCrawl(
        [small_task({HOME: html("home", ["/a"]), url("a"): html("end")})], stop_action=False
    )
    (step,) = played(env, lambda observation, step: 0)
    assert step[2]
    assert step[0]["mask"].tolist() == [0] * 64 + [1]  # a distribution needs one choice


@pytest.mark.parametrize("action", [5, 63, 64, 65, -1])
def test_a_forbidden_choice_is_refused(action: int) -> None:
    env = FocusedCrawl([small_task()], stop_action=False)
    with pytest.raises(
        ActionRefused, match=rf"action {action} is not allowed now: there are 5 links, and stopping"
    ):
        played(env, lambda observation, step: action)


@pytest.mark.parametrize("action", [5, 63, 64])
def test_a_forgiving_environment_takes_the_best(action: int) -> None:
    env = FocusedCrawl([small_task()], stop_action=False, forgiving=True)
    assert played(env, lambda observation, step: action, most=1)[0][4]["url"] == url("solar")


def test_no_step_before_a_reset_or_after_the_end() -> None:
    env = FocusedCrawl([small_task()])
    with pytest.raises(ActionRefused, match="call reset before step"):
        asyncio.run(env.step(0))
    played(env, lambda observation, step: 64)
    with pytest.raises(ActionRefused, match="call reset before step"):
        asyncio.run(env.step(0))


@pytest.mark.parametrize("failure", ["down", "budget"])
def test_where_the_crawler_cannot_go_on_the_episode_is_truncated(failure: str) -> None:
    pages = {**PAGES, url("news"): Answer(url("news"), 0, requests=0, failure=failure)}
    env = FocusedCrawl([small_task(pages)])
    ((_, reward, terminated, truncated, info),) = played(
        env, lambda observation, step: link_to(env, "news")
    )
    assert (reward, terminated, truncated, info["failure"]) == (0, False, True, failure)
    assert "episode" in info


@pytest.mark.parametrize(
    "failure", ["timeout", "connection", "robots", "size", "type", "redirects", "scope"]
)
def test_other_failures_are_part_of_the_problem(failure: str) -> None:
    pages = {**PAGES, url("news"): Answer(url("news"), 0, failure=failure)}
    env = FocusedCrawl([small_task(pages)], error_cost=0.1)
    ((_, reward, *ends, _),) = played(env, lambda observation, step: link_to(env, "news"), most=1)
    assert (reward, ends) == (pytest.approx(-0.13), [False, False])


def test_a_dead_site_is_unreachable() -> None:
    env = FocusedCrawl([small_task({HOME: Answer(HOME, 0, failure="connection")})])
    with pytest.raises(SiteUnreachable, match=r"no answer \(connection\)"):
        asyncio.run(env.reset(seed=0))


def test_seeds_and_options_choose_the_task() -> None:
    tasks = [small_task(chain(5), name=f"site {k}") for k in range(5)]
    env = FocusedCrawl(tasks)

    def name(**given: Any) -> str:
        asyncio.run(env.reset(**given))
        assert env.session is not None
        return env.session.task.name

    assert [name(seed=k) for k in range(20)] == [name(seed=k) for k in range(20)]
    assert {name(seed=k) for k in range(40)} == {task.name for task in tasks}
    assert name(options={"task": 3}) == name(options={"task": "site 3"}) == "site 3"
    with pytest.raises(SettingsError, match="reset takes options="):
        name(options={"task": 5})


def test_the_same_seed_and_actions_give_the_same_episode() -> None:
    def run() -> list[Any]:
        env = FocusedCrawl([small_task(chain(200, 6), targets=None)], candidates=8, budget=25)
        steps = played(
            env, lambda observation, step: step % 8 if observation["mask"][step % 8] else 0, seed=7
        )
        return [
            (flatten_observation(step[0]).tobytes(), *step[1:4], step[4]["url"]) for step in steps
        ]

    assert run() == run()


@pytest.mark.parametrize("closes", [False, True])
def test_fetchers_are_closed_by_who_owns_them(closes: bool) -> None:
    fetcher = FixedFetcher(PAGES)
    tasks = [small_task(), small_task()]
    for task in tasks:
        object.__setattr__(task, "fetcher", fetcher)
    asyncio.run(FocusedCrawl(tasks, closes_fetchers=closes).close())
    assert fetcher.closed == closes


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"tasks": []}, "not 0 tasks"),
        ({"candidates": 3}, "candidates=3"),
        ({"budget": 1}, "budget=1"),
        ({"request_cost": -1.0}, "request_cost=-1.0"),
        ({"threshold": 0.0}, "threshold=0.0"),
    ],
)
def test_bad_settings_are_refused(changed: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        FocusedCrawl(**({"tasks": [small_task(relevance=known())]} | changed))
