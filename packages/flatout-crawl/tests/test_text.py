"""Hashed text vectors: lengths, likeness, and that remembering changes nothing."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flatout.errors import SettingsError
from flatout_crawl.reading.text import TextVectors, Topic, cosine, url_text, word_features, words
from rounding import assert_close, close_to

SLOTS = [0, 2, 6, 8, 9, 10, 13, 14, 15, 21, 22, 23, 25]
CHECKSUM = -13.57869
LENGTH = 256  # roundings of a length or a product: most of 512 terms are zeros
TEXTS = st.lists(st.text(max_size=60), max_size=8)


def test_words_are_in_lower_case_and_say_something() -> None:
    assert words("The Solar-Panels of 2024, and ÜBER_uns") == [
        "solar",
        "panels",
        "2024",
        "über",
        "uns",
    ]


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


def says_nothing(text: str, dimension: int) -> bool:
    """Without words, or with such whose features meet in one slot with opposite signs: those of one
    letter have two.
    """
    sums = np.zeros(dimension)
    for word in words(text):
        np.add.at(sums, *word_features(word, dimension))
    return not sums.any()


@settings(max_examples=60, deadline=None)
@given(TEXTS)
@example(["Ⱦ", "solar power"])
def test_every_vector_has_length_1_or_says_nothing(texts: list[str]) -> None:
    matrix = TextVectors(64).matrix(texts)
    assert matrix.shape == (len(texts), 64)
    assert matrix.dtype == np.float32
    for text, length in zip(texts, np.linalg.norm(matrix, axis=1), strict=True):
        assert length == (
            0 if says_nothing(text, 64) else close_to(1, roundings=LENGTH, dtype=np.float32)
        )


@settings(max_examples=60, deadline=None)
@given(TEXTS)
def test_a_text_has_the_same_vector_alone_in_company_and_after_forgetting(texts: list[str]) -> None:
    forgetful = TextVectors(128, remembered_words=2)
    together = TextVectors(128).matrix(texts)
    for text, row in zip(texts, together, strict=True):
        assert_close(forgetful.vector(text), row, roundings=LENGTH, size=1.0)


def test_forms_of_a_word_are_alike_and_other_words_are_not() -> None:
    vectors = TextVectors()
    install, installing, cooking = vectors.matrix(["install", "installing", "cooking"])
    assert cosine(install, install) == close_to(1, roundings=LENGTH, dtype=np.float32)
    assert cosine(install, installing) > 0.25
    assert abs(cosine(install, cooking)) < 0.15
    assert cosine(install, np.zeros_like(install)) == 0


def test_vectors_are_the_same_in_every_process() -> None:
    """A policy is trained in one process and used in another: this number must never change."""
    vector = TextVectors(32).vector("solar power")
    assert np.flatnonzero(vector).tolist() == SLOTS
    assert float(vector @ np.arange(32)) == close_to(CHECKSUM, roundings=LENGTH, dtype=np.float32)


def test_similarities_are_cosines_and_remembered_ones_the_same() -> None:
    topic = Topic("solar power", remembered_texts=4)
    texts = ["solar", "power of the sun", "", "solar power", "football", "solar"]
    first = topic.similarities(texts)
    expected = [cosine(topic.vector, TextVectors().vector(text)) for text in texts]
    assert_close(first, expected, roundings=LENGTH, size=1.0)
    assert first[3] == close_to(1, roundings=LENGTH, dtype=np.float32)
    np.testing.assert_array_equal(topic.similarities(texts), first)
    assert_close(
        topic.similarities(["other", "words", *texts])[2:], first, roundings=LENGTH, size=1.0
    )
    assert len(topic._known) <= 7


def test_bad_sizes_are_refused() -> None:
    with pytest.raises(SettingsError, match="dimension of 16 or more"):
        TextVectors(8)
