"""Hashed text vectors: lengths, likeness, and that remembering changes nothing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flatout.crawl.text import TextVectors, Topic, cosine, url_text, words
from flatout.errors import SettingsError

SLOTS = [0, 2, 6, 8, 9, 10, 13, 14, 15, 21, 22, 23, 25]
CHECKSUM = -13.57869
TEXTS = st.lists(st.text(max_size=60), max_size=8)


def test_words_are_in_lower_case_and_say_something() -> None:
    assert words("The Solar-Panels of 2024, and ÜBER_uns") == ["solar", "panels", "2024", "über", "uns"]


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("https://a.org/docs/getStarted_now.html", "docs get started now"),
        ("https://a.org/a%20b/", "a b"),
        ("https://a.org/list?topic=wind&page=2", "list topic wind page 2"),
        ("https://a.org/", ""),
    ],
)
def test_a_url_in_words(url: str, says: str) -> None:
    assert url_text(url) == says


@settings(max_examples=60, deadline=None)
@given(TEXTS)
def test_every_vector_has_length_1_or_no_words(texts: list[str]) -> None:
    matrix = TextVectors(64).matrix(texts)
    assert matrix.shape == (len(texts), 64)
    assert matrix.dtype == np.float32
    lengths = np.linalg.norm(matrix, axis=1)
    for text, length in zip(texts, lengths, strict=True):
        # Two features of a word may meet in one slot with opposite signs; all of a text's cannot.
        assert length == pytest.approx(1, abs=1e-5) if words(text) else length == 0


@settings(max_examples=60, deadline=None)
@given(TEXTS)
def test_a_text_has_the_same_vector_alone_in_company_and_after_forgetting(texts: list[str]) -> None:
    forgetful = TextVectors(128, remembered_words=2)
    together = TextVectors(128).matrix(texts)
    for text, row in zip(texts, together, strict=True):
        np.testing.assert_allclose(forgetful.vector(text), row, atol=1e-6)


def test_forms_of_a_word_are_alike_and_other_words_are_not() -> None:
    vectors = TextVectors()
    install, installing, cooking = vectors.matrix(["install", "installing", "cooking"])
    assert cosine(install, install) == pytest.approx(1)
    assert cosine(install, installing) > 0.25
    assert abs(cosine(install, cooking)) < 0.15
    assert cosine(install, np.zeros_like(install)) == 0


def test_vectors_are_the_same_in_every_process() -> None:
    """A policy is trained in one process and used in another: this number must never change."""
    vector = TextVectors(32).vector("solar power")
    assert np.flatnonzero(vector).tolist() == SLOTS
    assert float(vector @ np.arange(32)) == pytest.approx(CHECKSUM, abs=1e-4)


def test_similarities_are_cosines_and_remembered_ones_the_same() -> None:
    topic = Topic("solar power", remembered_texts=4)
    texts = ["solar", "power of the sun", "", "solar power", "football", "solar"]
    first = topic.similarities(texts)
    expected = [cosine(topic.vector, TextVectors().vector(text)) for text in texts]
    np.testing.assert_allclose(first, expected, atol=1e-6)
    assert first[3] == pytest.approx(1)
    np.testing.assert_array_equal(topic.similarities(texts), first)
    np.testing.assert_allclose(topic.similarities(["other", "words", *texts])[2:], first, atol=1e-6)
    assert len(topic._known) <= 7


def test_bad_sizes_are_refused() -> None:
    with pytest.raises(SettingsError, match="dimension of 16 or more"):
        TextVectors(8)
