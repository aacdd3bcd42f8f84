"""A study that was begun goes on with its own bars and settings, or says why not."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_studies import USUAL, small_panel

from flatout.bars import source
from flatout.bars.source import IN_MEMORY, find_source
from flatout.bars.write import to_table
from flatout.errors import RunError
from flatout.search.run import PreparedStudy, make_folder, open_study_folder
from flatout.search.run_study import AskedStudy, prepare_studies
from flatout.search.storage import JOURNAL
from flatout.settings.loading import resolve_settings
from flatout.training.prepare import KEPT_BARS

Ask = Callable[..., PreparedStudy]


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    """A study as `run_study` prepares it, by bars, symbols, bar and settings."""

    def call(
        bars: Any = None, settings: Any = USUAL, name: str = "k", **given: Any
    ) -> PreparedStudy:
        resolved = resolve_settings(settings)
        asked = AskedStudy(name, resolved, find_source(resolved, bars, **given))
        return prepare_studies([asked], tmp_path, workers=1, device="cpu")[0][0]

    return call


def begin(prepared: PreparedStudy, out: Path) -> Path:
    """Write what is asked, without a trial."""
    folder = make_folder(out, "k")
    with open_study_folder(prepared, folder, None):
        return folder


@pytest.fixture
def begun(ask: Ask, tmp_path: Path) -> PreparedStudy:
    frame = to_table(small_panel())
    prepared = ask(frame, symbols=["TWO", "ONE"], bar="2h")
    begin(prepared, tmp_path)
    return prepared


@pytest.mark.parametrize(
    "given", [{}, {"symbols": ["TWO", "ONE"]}, {"symbols": "TWO,ONE", "bar": "2h"}]
)
def test_without_bars_it_goes_on_with_those_that_it_kept(
    ask: Ask, begun: PreparedStudy, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "built_in_market", None)  # which nobody asks for
    again = ask(**given)
    assert again.panel.fingerprint == begun.panel.fingerprint
    assert again.request == begun.request
    assert again.request.bars == IN_MEMORY


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"bar": "3h"}, "was begun with bar 2h, not 3h: leave it out, or give another `name`"),
        ({"symbols": ["ONE"]}, "was begun with symbols TWO, ONE, not ONE: leave it out"),
        ({"settings": None}, r"was begun with other settings: features\.indicators, .* differ"),
    ],
)
@pytest.mark.usefixtures("begun")
def test_what_is_not_its_own_is_refused(ask: Ask, given: dict[str, Any], said: str) -> None:
    with pytest.raises(RunError, match=said):
        ask(**given)


def test_bars_that_a_file_cannot_hold_are_told(ask: Ask, tmp_path: Path) -> None:
    panel = small_panel()
    odd = replace(panel, high=panel.low)  # which no file may have
    prepared = ask(odd)
    with pytest.warns(UserWarning, match="the bars are not kept, so give them again"):
        folder = begin(prepared, tmp_path)
    assert not (folder / KEPT_BARS).exists()


@pytest.mark.usefixtures("begun")
def test_a_folder_that_was_renamed_is_told_its_old_name(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "k").rename(tmp_path / "new")
    with pytest.raises(RunError, match="new holds the study 'k', begun under that name"):
        ask(name="new")


def test_a_journal_that_was_replaced_is_named(ask: Ask, tmp_path: Path) -> None:
    prepared = ask(small_panel())
    folder = begin(prepared, tmp_path)
    with open_study_folder(prepared, folder, None) as study:
        study.save(asked=3)
    (folder / JOURNAL).write_bytes(b"")
    message = rf"{JOURNAL}: holds 0 of the 3 trials that board.json names, as if it was emptied"
    with (
        pytest.raises(RunError, match=message),
        open_study_folder(prepared, folder, None),
    ):
        pass
