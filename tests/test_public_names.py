"""The public names: few, listed once, loaded when first used."""

import subprocess
import sys
from functools import cache
from importlib import import_module

import pytest

import flatout

HEAVY = ("jax", "jaxlib", "torch", "optuna", "aiohttp")


@cache
def loaded_by(statement: str) -> frozenset[str]:
    """The modules that a fresh interpreter holds after this statement."""
    code = f"import sys; {statement}; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return frozenset(run.stdout.split())


def test_the_list_is_sorted_and_equals_the_homes() -> None:
    assert list(flatout.HOMES) == flatout.__all__
    assert flatout.__all__ == sorted(flatout.__all__)
    assert dir(flatout) == flatout.__all__


def test_there_are_few() -> None:
    assert 8 <= len(flatout.__all__) <= 24


def test_the_list_is_this() -> None:
    """A name that goes or comes is a decision: it is made here too."""
    assert set(flatout.__all__) == {
        "AsyncioVectorEnv",
        "FittedRecipe",
        "FlatoutError",
        "Market",
        "MarketEnv",
        "MarketVectorEnv",
        "Overlap",
        "PPO",
        "Panel",
        "Recipe",
        "Settings",
        "TorchMarket",
        "backtest",
        "build_market",
        "export_policy",
        "load_policy",
        "load_settings",
        "read_bars",
        "run_study",
        "train",
    }


@pytest.mark.parametrize("name", flatout.__all__)
def test_every_name_is_that_of_its_home(name: str) -> None:
    thing = getattr(flatout, name)
    assert thing is getattr(import_module(flatout.HOMES[name]), name)
    assert thing.__module__ == flatout.HOMES[name]
    assert thing.__doc__


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(
        AttributeError, match=r"no public name 'Markt'; there are AsyncioVectorEnv, .*read_bars"
    ):
        flatout.Markt  # noqa: B018


def test_an_unknown_name_cannot_be_imported() -> None:
    with pytest.raises(ImportError):
        from flatout import Markt  # noqa: F401


@pytest.mark.parametrize("module", ["flatout", "flatout.cli.main"])
def test_importing_loads_nothing_heavy(module: str) -> None:
    found = loaded_by(f"import {module}")
    assert module in found
    assert found.isdisjoint(HEAVY)


def test_ppo_loads_its_engines_when_it_is_given_an_environment() -> None:
    found = loaded_by("from flatout import PPO")
    assert "flatout.sb3.ppo" in found
    assert found.isdisjoint({*HEAVY, "stable_baselines3"})


def test_a_name_is_loaded_when_it_is_first_used() -> None:
    assert "flatout.settings.tables" not in loaded_by("import flatout")
    assert "flatout.settings.tables" in loaded_by("import flatout; flatout.load_settings")
