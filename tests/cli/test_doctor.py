"""`flatout doctor`: the facts, and what is missing with the way to get it."""

import importlib.util
import json
import platform
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import pytest
from typer.testing import CliRunner

from flatout.cli import doctor
from flatout.cli.main import main
from flatout.runs import PACKAGES
from flatout.workers import devices

FACTS = {
    "python", "system", "cores", "memory", ("free "
                                           "memory"), ("gpu "
                                                      "drivers"), ("jax "
                                                                  "devices"), ("torch "
                                                                              "devices"), "chosen",
    "missing",
}  # fmt: skip


@pytest.fixture
def without_torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As on a machine where PyTorch is not installed."""
    find = importlib.util.find_spec

    def find_all_but_torch(name: str, package: str | None = None) -> Any:
        return None if name == "torch" else find(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find_all_but_torch)
    devices.ask_library.cache_clear()
    yield
    devices.ask_library.cache_clear()


def test_json_has_every_fact() -> None:
    result = CliRunner().invoke(main, ["doctor", "--json"])
    facts = json.loads(result.stdout)
    assert set(facts) == FACTS | set(PACKAGES)
    assert facts["python"] == platform.python_version()
    assert facts["numpy"] == version("numpy")
    assert facts["cores"] >= 1
    assert facts["memory"].endswith(" GiB") or facts["memory"] == "unknown"
    assert facts["jax devices"][0] == facts["torch devices"][0] == "cpu"
    assert facts["chosen"].startswith(("jax on ", "torch on "))


def test_the_table_shows_every_fact() -> None:
    result = CliRunner().invoke(main, ["doctor"], env={"COLUMNS": "160"})
    assert result.exit_code == 0
    for name in (FACTS - {"missing"}) | set(PACKAGES):
        assert name in result.output
    assert version("jax") in result.output


@pytest.mark.usefixtures("without_torch")
def test_a_missing_extra_is_named_with_its_purpose_and_how_to_get_it() -> None:
    facts = json.loads(CliRunner().invoke(main, ["doctor", "--json"]).stdout)
    assert facts["torch devices"] == ["cpu", "trouble: torch is not installed"]
    [line] = [line for line in facts["missing"] if line.startswith("torch (")]
    assert line.endswith("pip install 'flatout[torch]'")


@pytest.mark.usefixtures("without_torch")
def test_what_to_install_can_be_copied_from_the_screen() -> None:
    result = CliRunner().invoke(main, ["doctor"], env={"COLUMNS": "160"})
    assert "pip install 'flatout[torch]'" in result.output
    assert "nothing is missing" not in result.output


def test_nothing_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "EXTRAS", {})
    assert "nothing is missing" in CliRunner().invoke(main, ["doctor"]).output


def test_a_package_that_is_absent_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "versions", lambda: {"polars": None, "numpy": "9"})
    facts = doctor.look()
    assert (facts["polars"], facts["numpy"]) == ("not installed", "9")
