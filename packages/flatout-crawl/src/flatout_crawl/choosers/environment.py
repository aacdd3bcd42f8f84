"""The crawl as an environment: choose a link, get its page, earn its relevance. Steps wait; see
`slow_envs/`.

Action k follows the k-th candidate, the last action stops. The candidates' order is theirs by
score, best first, so the first is what best-first search would take. Fetchers belong to whoever
made the tasks.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Discrete

from flatout.errors import FlatoutError, SettingsError
from flatout_crawl.choosers.observation import (
    CandidateView,
    Observation,
    observation_space,
    observe,
)
from flatout_crawl.choosers.session import CrawlSession, CrawlTask, Prices, SiteUnreachable, Visit

__all__ = ["ActionRefused", "CrawlTask", "FocusedCrawl", "SiteUnreachable"]

Info = dict[str, Any]


class ActionRefused(FlatoutError):  # noqa: N818
    """A choice that the mask forbids, or a step after the end: a mistake of whoever chose."""


class FocusedCrawl:
    """Find relevant pages with few requests; an `AsyncEnv`.

    An episode ends (terminated) when the budget is spent, no link is left, all known targets are
    found, or the agent stops; it is truncated only where the crawler itself cannot go on.
    """

    def __init__(
        self,
        tasks: Sequence[CrawlTask],
        *,
        candidates: int = 64,
        budget: int | tuple[int, int] = 100,
        stop_action: bool = True,
        request_cost: float = 0.03,
        error_cost: float = 0.03,
        megabyte_cost: float = 0.0,
        threshold: float = 0.5,
        forgiving: bool = False,
        closes_fetchers: bool = False,
    ) -> None:
        """A budget of (least, most) requests is drawn anew for each crawl, small ones more often.
        `forgiving` takes the best candidate for a forbidden choice, for learners that know no
        masks.
        """
        low, high = budget if isinstance(budget, tuple) else (budget, budget)
        if not tasks or candidates < 4 or not 2 <= low <= high:
            raise SettingsError(
                "a crawl needs at least one task, 4 candidates and a budget of 2 requests (the "
                f"seed page is one), not {len(tasks)} tasks, candidates={candidates}, "
                f"budget={budget}"
            )
        if min(request_cost, error_cost, megabyte_cost) < 0 or not 0 < threshold <= 1:
            raise SettingsError(
                "costs must be 0 or more and the threshold above 0 and at most 1, not request_cost="
                f"{request_cost}, error_cost={error_cost}, megabyte_cost={megabyte_cost}, "
                f"threshold={threshold}"
            )
        self.tasks, self.candidates, self.budget = tuple(tasks), candidates, (low, high)
        self.stop_action, self.forgiving, self.closes_fetchers = (
            stop_action,
            forgiving,
            closes_fetchers,
        )
        self.prices = Prices(request_cost, error_cost, megabyte_cost, threshold)
        self.observation_space: Space[Any] = observation_space(candidates)
        self.action_space: Space[Any] = Discrete(candidates + 1)
        self.session: CrawlSession | None = None
        self._rng = np.random.default_rng()
        self._seen: CandidateView | None = None
        self._ended = True

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, Info]:
        """Begin a crawl of a task drawn at random, or of options["task"]: its place or name."""
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        task = self._task(options or {})
        session = CrawlSession(task, task.budget or self._budget(), self.prices)
        visit = await session.start()
        self.session, self._ended = session, session.over
        self._seen = self._look(session)
        return self._seen.observation, self._info(session, visit)

    async def step(self, action: Any) -> tuple[Observation, float, bool, bool, Info]:
        """Follow a link, or stop."""
        session, seen, chosen = self._check_action(int(action))
        visit = None
        if chosen is not None:
            visit = await session.fetch(session.frontier.links[chosen].url)
            seen = self._seen = self._look(session)
        technical = visit is not None and visit.technical
        self._ended = visit is None or technical or session.over
        info = self._info(session, visit) | (self._outcome(session) if self._ended else {})
        return (
            seen.observation,
            visit.reward if visit else 0.0,
            self._ended and not technical,
            technical,
            info,
        )

    async def close(self) -> None:
        """Close the fetchers, if they were given away with the tasks."""
        for fetcher in (
            {id(task.fetcher): task.fetcher for task in self.tasks}.values()
            if self.closes_fetchers
            else ()
        ):
            await fetcher.close()

    def _look(self, session: CrawlSession) -> CandidateView:
        return observe(session, self.candidates, self._rng, self.stop_action)

    def _budget(self) -> int:
        low, high = self.budget
        return (
            low
            if low == high
            else round(float(np.exp(self._rng.uniform(np.log(low), np.log(high)))))
        )

    def _task(self, options: dict[str, Any]) -> CrawlTask:
        named = {key: task for k, task in enumerate(self.tasks) for key in (k, task.name)}
        if set(options) - {"task"} or ("task" in options and options["task"] not in named):
            raise SettingsError(
                f"reset takes options={{'task': one of {list(named)}}} or none, not {options}"
            )
        return (
            named[options["task"]]
            if options
            else self.tasks[int(self._rng.integers(len(self.tasks)))]
        )

    def _check_action(self, action: int) -> tuple[CrawlSession, CandidateView, int | None]:
        """The session, what was seen, and the link to follow, or None to stop."""
        if self.session is None or self._seen is None or self._ended:
            raise ActionRefused("the episode is over or never began: call reset before step")
        mask, links = self._seen.observation["mask"], self._seen.links
        if not 0 <= action <= self.candidates or not mask[action]:
            if not self.forgiving:
                raise ActionRefused(
                    f"action {action} is not allowed now: there are {len(links)} links, and "
                    f"stopping ({self.candidates}) is {'possible' if mask[-1] else 'not'}; choose "
                    "where the mask is 1, or make the environment forgiving=True"
                )
            action = 0
        return self.session, self._seen, None if action == self.candidates else int(links[action])

    def _outcome(self, session: CrawlSession) -> Info:
        """The info at the end of an episode; its length is without the seed page."""
        return {
            "episode": {"r": session.total_reward, "l": session.steps},
            "recall": session.recall,
            "harvest": tuple(session.curve),
        }

    def _info(self, session: CrawlSession, visit: Visit | None) -> Info:
        """What happened; `visit` is None where the agent stopped."""
        return {
            "url": visit.answer.url if visit else "",
            "status": visit.answer.status if visit else 0,
            "failure": visit.answer.failure if visit else "",
            "relevance": visit.relevance if visit else 0.0,
            "repeat": visit.repeat if visit else False,
            "targets_found": len(session.found),
            "requests": session.requests,
        }
