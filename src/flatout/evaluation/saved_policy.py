"""`SavedPolicy`: a saved policy in backtests, beside the baselines and under the same rules.

It sees what training showed it and orders what training let it order; the network runs in single
precision on NumPy, the ledger in double. A market that is not the policy's is refused at the first
bar.
"""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from flatout.bars.panel import Panel
from flatout.bars.read import name_symbols
from flatout.bars.source import Bars, BarsSource, find_source
from flatout.errors import BundleError, RecipeError, RulesError
from flatout.evaluation.accounts import Floats
from flatout.evaluation.baselines import BASELINES, Moment, Policy, RandomTrader
from flatout.evaluation.policy_backtest import BacktestResult, Period, backtest_policy, find_rows
from flatout.features.unseen_symbols import list_unseen
from flatout.foreign import shorten, shorten_repr, to_path
from flatout.market.rewards import LEAST_EQUITY
from flatout.policies.bundle import Actions, Bundle
from flatout.policies.bundle_files import JSON_FILE
from flatout.policies.other_symbols import describe_taught, move_bundle
from flatout.settings.loading import GivenSettings, Resolved, resolve_settings

LONGEST_SYMBOLS = 60  # letters of them in a line about a policy
DEEPEST, MOST_NAMED = 3, 6  # where policies are looked for below a folder, and how many are told


@dataclass(frozen=True)
class SavedPolicy:
    """The policy of a bundle, without noise."""

    bundle: Bundle
    folder: Path = Path("learned")  # where it was loaded from

    def __repr__(self) -> str:
        """One line: where it lies, what goes in and comes out, how long it learnt, how well."""
        bundle, notes = self.bundle, self.bundle.notes
        symbols = shorten(", ".join(bundle.recipe.symbols), LONGEST_SYMBOLS)
        said = [
            f"{bundle.settings.action} actions for {symbols}",
            f"{bundle.observation_size} numbers observed",
        ]
        if isinstance(steps := notes.get("timesteps"), int):
            said.append(f"{steps:,} timesteps")
        if isinstance(score := notes.get("best_held_out_reward"), float):
            said.append(f"held-out reward {score:.4g}")
        if taught := describe_taught(bundle):
            said.append(taught)
        return f"SavedPolicy({str(self.folder)!r}: {', '.join(said)})"

    @property
    def name(self) -> str:
        """What it is called beside the baselines: its folder's name."""
        name = (
            self.folder.name if self.folder.name not in ("", "..") else self.folder.resolve().name
        )
        return f"{name}-learned" if name in BASELINES else name

    def predict(self, observation: ArrayLike) -> Actions:
        """The action, (..., action) in [-1, 1] or whole numbers if it is `discrete`, for an
        observation (..., observation): the mode of the policy, without noise. `flatout.MarketEnv`
        gives such observations and takes such actions.
        """
        try:
            seen = np.asarray(observation, np.float32)
        except (TypeError, ValueError):
            raise BundleError(
                f"the observation is {shorten_repr(observation)}: give "
                f"{self.bundle.observation_size} numbers, or rows of as many"
            ) from None
        return self.bundle.act(seen)

    def for_symbols(self, symbols: Sequence[str]) -> "SavedPolicy":
        """The same policy for bars of exactly these symbols, in this order: how one that looks at
        each asset in turn (`train.network = "per_asset"`) is asked to trade symbols that did not
        teach it. Its results say so. Flat networks have a place for each symbol and are refused.
        """
        named = name_symbols(symbols) or self.bundle.recipe.symbols
        moved = move_bundle(self.bundle, named)
        return self if moved is self.bundle else replace(self, bundle=moved)

    def backtest(
        self,
        bars: Bars | None = None,
        *,
        symbols: Sequence[str] | None = None,
        bar: str | None = None,
        since: str | None = None,
        until: str | None = None,
        settings: GivenSettings = None,
        seed: int = 0,
        progress: bool = True,
    ) -> BacktestResult:
        """What it would have earned on these bars, beside the baselines and luck; flat at
        the first bar.

        bars          a path, a Panel, or a frame; by default `data.bars` of the settings, and
                      without these the built-in random walk
        symbols       which symbols, by default the policy's own; one that looks at each asset in
                      turn trades others, too, if they are named here: see `for_symbols`
        bar           the size to resample to, which must be the policy's own
        since, until  times in UTC, as in "2024-05-01": the first decision is made at or after
                      `since`, the last bar traded is before `until`
        settings      changes of the market it was trained in: costs and limits, but neither action
                      nor fill; its features it brings along
        seed          of the built-in market, and of the copies that are luck
        progress      whether to show a bar
        """
        policy = self if symbols is None else self.for_symbols(symbols)
        resolved = resolve_settings(settings, base=policy.bundle.as_settings())
        source = find_source(resolved, bars, symbols, bar, seed)
        return policy.backtest_on(source, resolved, (since, until), source.seed, quiet=not progress)

    def backtest_on(
        self, source: BarsSource, resolved: Resolved, period: Period, seed: int, quiet: bool
    ) -> BacktestResult:
        """Trade bars and settings that are already found; `backtest` finds them first."""
        panel = source.read()
        try:
            market = self.bundle.market(panel, resolved.settings.market, resolved.settings.features)
        except RecipeError as error:
            if source.bars is not None:
                raise
            raise RecipeError(
                "no bars are given (`bars`, or data.bars in the settings), and the built-in "
                f"market is none that this policy can trade: {error}"
            ) from None
        first, stop = find_rows(
            market.panel, period, market.fitted.recipe.count_warmup(market.panel)
        )
        return backtest_policy(
            self,
            self.name,
            market,
            source=source.name,
            resolved=resolved,
            period=period,
            seed=seed,
            quiet=quiet,
            bundle=self.describe(market.panel, first, stop),
        )

    def describe(self, panel: Panel, first: int, stop: int) -> dict[str, Any]:
        """Where it comes from, and how many of the bars traded here it may have learnt by heart."""
        training, taught = self.bundle.recipe.training, self.bundle.taught
        others = {
            "taught_symbols": list(taught),
            "unseen_symbols": list_unseen(taught, panel.symbols),
            "remark": describe_taught(self.bundle),
        }
        return {
            **(others if taught else {}),
            "folder": str(self.folder),
            "schema_hash": self.bundle.schema_hash,
            "notes": dict(self.bundle.notes),
            "trained_from": training.first_time,
            "trained_to": training.last_time,
            "bars_of_training": bars_of_training(self.bundle, panel, first, stop),
        }

    def money(self, moment: Moment) -> Floats:
        """The (account, asset) order in money."""
        accounts = moment.require_accounts()
        self.bundle.check_shown(accounts.fitted, accounts.shape)
        return accounts.order(self.bundle.act(accounts.observe()))

    def __call__(self, moment: Moment) -> Floats:
        """Its decisions as shares of the equity, as baselines give them."""
        return (
            self.money(moment) / np.maximum(moment.require_accounts().equity, LEAST_EQUITY)[:, None]
        )


def load_policy(folder: Path | str) -> SavedPolicy:
    """The policy that a training or a study saved in this folder: it can `predict` from
    observations and `backtest` itself on bars.

    >>> import tempfile, flatout
    >>> settings = {"train": {"n_envs": 4, "n_steps": 16, "hidden": [8]}}
    >>> with tempfile.TemporaryDirectory() as out:
    ...     made = flatout.train(timesteps=64, settings=settings, out=out, progress=False)
    ...     policy = flatout.load_policy(made.load_policy().folder)
    >>> observation, _ = flatout.MarketEnv().reset(seed=0)
    >>> policy.predict(observation).shape
    (6,)
    """
    path = to_path(folder, "the folder of a policy", BundleError)
    refuse_folder_above(path)
    return SavedPolicy(Bundle.load(path), path)


def refuse_folder_above(folder: Path) -> None:
    """Refuse the folder of a run or a study, which holds policies further down: they are named."""
    if (folder / JSON_FILE).exists():
        return
    if folder.is_file():
        raise BundleError(f"{folder} is a file; give the folder of a policy, as {folder.parent}")
    below = [path for depth in range(1, DEEPEST + 1) for path in list_policies(folder, depth)]
    if below:
        named = ", ".join(map(str, below[:MOST_NAMED]))
        more = f" and {len(below) - MOST_NAMED:,} more" if len(below) > MOST_NAMED else ""
        raise BundleError(
            f"{folder} holds no policy itself; give one of those below: {named}{more}"
        )


def list_policies(folder: Path, depth: int) -> list[Path]:
    """The folders so many steps below that hold a policy, the best ones first."""
    found = [path.parent for path in folder.glob(f"{'*/' * depth}{JSON_FILE}")]
    return sorted(found, key=lambda path: (path.name != "best", path))


def find_policy(name: str, seed: int = 0) -> Policy:
    """The baseline of this name, or the policy saved in this folder."""
    if name == "random":
        return RandomTrader(seed=seed)
    if name in BASELINES:
        return BASELINES[name]
    if Path(name).is_dir():
        return load_policy(name)
    near = difflib.get_close_matches(name, BASELINES, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    known = ", ".join(BASELINES)
    raise RulesError(
        f"there is no policy {name!r}: choose one of {known}, or give the folder of a saved "
        f"one{hint}"
    )


def bars_of_training(bundle: Bundle, panel: Panel, first: int, stop: int) -> int:
    """How many bars traded in a backtest of first..stop-1 lie between the first and last bar of the
    training: what is earned there may be memory.
    """
    training, times = bundle.recipe.training, panel.time[first + 1 : stop]
    start, end = (
        np.datetime64(text.removesuffix("Z")) for text in (training.first_time, training.last_time)
    )
    return int(np.sum((times >= start) & (times <= end)))
