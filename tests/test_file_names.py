"""File names from symbols and names: safe, readable, reversible."""

import string
from pathlib import Path, PurePosixPath, PureWindowsPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatout.errors import RunError
from flatout.file_names import LONGEST, decode_file_name, file_name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("BTCUSDT", "BTCUSDT"),
        ("BTC-USD.P_1", "BTC-USD.P_1"),
        ("BTC/USDT", "BTC%2FUSDT"),
        ("../../up", "%2E.%2F..%2Fup"),
        ("/abs/path", "%2Fabs%2Fpath"),
        (".hidden", "%2Ehidden"),
        ("-rf", "%2Drf"),
        ("100%", "100%25"),
        ("a\\b", "a%5Cb"),
        ("C:x", "C%3Ax"),
        ("nul.csv", "%6Eul.csv"),
        ("x.", "x%2E"),
        ("a\x00b\n", "a%00b%0A"),
        ("贵州茅台", "贵州茅台"),
        ("é", "%C3%A9"),
        (".", "%2E"),
        ("..", "%2E%2E"),
        ("~", "%7E"),
        ("\ud800", "%ED%A0%80"),
    ],
)
def test_ordinary_and_odd_names(text: str, name: str) -> None:
    assert file_name(text) == name
    assert decode_file_name(name) == text


@given(st.text(min_size=1, max_size=10))
def test_any_text_is_one_name_and_comes_back(text: str) -> None:
    name = file_name(text)
    assert decode_file_name(name) == text
    assert PurePosixPath("/a", name).parent == PurePosixPath("/a")
    assert PureWindowsPath("c:/a", name).parent == PureWindowsPath("c:/a")
    assert name[0] not in ".-~ " and name[-1] not in ". "
    assert not set(name) & set('/\\:*?"<>|') and name.isprintable()


@given(
    st.lists(
        st.text(string.ascii_letters + "/.%", min_size=1, max_size=4),
        min_size=2,
        max_size=2,
        unique=True,
    )
)
def test_two_texts_have_two_names(texts: list[str]) -> None:
    assert file_name(texts[0]) != file_name(texts[1])


@pytest.mark.parametrize("text", ["", "x" * (LONGEST + 1), "/" * LONGEST])
def test_what_cannot_be_a_name_is_refused(text: str) -> None:
    with pytest.raises(RunError, match="name"):
        file_name(text)


def test_the_longest_name_is_one(tmp_path: Path) -> None:
    (tmp_path / file_name("x" * LONGEST)).touch()
