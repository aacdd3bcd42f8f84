"""Examples in docstrings run, and every public function and class has one.

An example is found in the docstring of the name itself, in that of its module, or as a script in
`examples/`. Exceptions and constants need none.
"""

import ast
import doctest
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from inspect import isclass, isfunction
from pathlib import Path
from typing import Any

import pytest

from public_modules import public_modules, public_names

EXAMPLES = Path(__file__).parents[1] / "examples"
PUBLIC = [(module, name) for module in public_modules() for name in sorted(public_names(module))]

OURS = re.compile(r"flatout(_crawl)?(\.\w+)+")  # a module of ours, or what is in it


@cache
def names_in(source: str) -> frozenset[str]:
    """The names that Python code mentions, as a name or behind one of our modules: a method of the
    same name is another thing.
    """
    nodes = list(ast.walk(ast.parse(source)))
    bare = {node.id for node in nodes if isinstance(node, ast.Name)}
    dotted = (ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute))
    ours = {name.rpartition(".")[2] for name in dotted if OURS.fullmatch(name)}
    return frozenset(bare | ours)


def examples_of(module: str, name: str) -> Iterator[str]:
    """The code of all examples that may show a public name."""
    parser, home = doctest.DocTestParser(), import_module(module)
    for text in (home.__doc__, getattr(home, name).__doc__):
        yield "".join(example.source for example in parser.get_examples(text or ""))
    for script in sorted(EXAMPLES.rglob("*.py")):
        yield script.read_text()


def needs_example(thing: object) -> bool:
    """Whether something public is a function, or a class that is no exception; `Any` is neither."""
    return isfunction(thing) or (
        isclass(thing) and thing is not Any and not issubclass(thing, BaseException)
    )


@pytest.mark.parametrize("module", public_modules())
def test_the_examples_of_a_public_module_run(module: str) -> None:
    result = doctest.testmod(import_module(module), optionflags=doctest.ELLIPSIS)
    assert result.failed == 0


@pytest.mark.parametrize(("module", "name"), PUBLIC, ids=lambda part: part)
def test_a_public_name_has_an_example(module: str, name: str) -> None:
    if needs_example(getattr(import_module(module), name)):
        assert any(name in names_in(code) for code in examples_of(module, name))


def test_the_examples_of_the_package_itself_run() -> None:
    """The names of `flatout` are loaded when first used, so that a search in it finds none."""
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    finder = doctest.DocTestFinder(recurse=False)
    for name in sorted(public_names("flatout")):
        thing = getattr(import_module("flatout"), name)
        for found in finder.find(thing, name, module=import_module(thing.__module__)):
            runner.run(found)
    result = runner.summarize(verbose=False)
    assert result.failed == 0 and result.attempted > 2 * len(public_names("flatout"))


def test_a_wrong_example_would_fail() -> None:
    test = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, None)
    assert doctest.DocTestRunner(verbose=False).run(test, out=lambda text: None).failed == 1


def test_an_example_that_does_not_show_the_name_is_none() -> None:
    assert "read_json" not in names_in("parse_json('{}', dict, 'read_json')")
    assert "read_json" in names_in("flatout.foreign.read_json(path, dict)")
    assert "load_policy" not in names_in("flatout.train(bars).load_policy()")
    assert "load_policy" not in names_in("result.load_policy()")
