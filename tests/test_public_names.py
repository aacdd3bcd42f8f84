"""The public names: few, listed once, loaded when first used."""

import ast
import builtins
import doctest
import inspect
import re
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


# PPO's arguments are Stable-Baselines3's, and are explained there
EXPLAINED = sorted(set(flatout.__all__) - {"FlatoutError", "PPO"})


@pytest.mark.parametrize("name", EXPLAINED)
def test_help_explains_every_argument(name: str) -> None:
    thing = getattr(flatout, name)
    said = inspect.getdoc(thing) or ""
    for argument in inspect.signature(thing).parameters:
        assert re.search(rf"\b{argument}\b", said), argument


@pytest.mark.parametrize("name", sorted(flatout.__all__))
def test_an_example_may_be_pasted(name: str) -> None:
    """Beside the name itself it uses only what it imports or makes."""
    examples = doctest.DocTestParser().get_examples(getattr(flatout, name).__doc__ or "")
    nodes = list(ast.walk(ast.parse("".join(one.source for one in examples))))
    imported = {
        alias.asname or alias.name
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    names = [node for node in nodes if isinstance(node, ast.Name)]
    made = {one.id for one in names if isinstance(one.ctx, ast.Store)}
    made |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    made |= {node.name for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    used = {one.id for one in names if isinstance(one.ctx, ast.Load)}
    assert used <= {name, *imported, *made, *dir(builtins)}


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
