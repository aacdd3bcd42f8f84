"""Text as vectors without a model: words and their character n-grams, hashed into a few hundred
numbers.

Words that share a stem share n-grams, so "install" is near "installing"; nothing is downloaded or
fitted. The hash is CRC-32, the same in every process. This file knows nothing about pages or links.
"""

import re
import zlib
from collections.abc import Sequence
from urllib.parse import unquote, urlsplit

import numpy as np
from numpy.typing import NDArray

from flatout.errors import SettingsError

Floats = NDArray[np.float32]

WORD = re.compile(r"[^\W\d_]+|\d+")
CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
EXTENSION = re.compile(r"\.[A-Za-z0-9]{1,5}$")
NGRAMS = (3, 4)
# of a word at most: itself, and its n-grams in order of length; later ones are dropped
WORD_FEATURES = 24
LONGEST_WORD = 40  # letters; the rest of a longer one says little
STOP_WORDS = frozenset(
    (
        "a",
        "an",
        "and",
        "are",
        "as",
        "at",
        "be",
        "by",
        "for",
        "from",
        "has",
        "have",
        "in",
        "into",
        "is",
        "it",
        "its",
        "more",
        "not",
        "of",
        "on",
        "or",
        "our",
        "that",
        "the",
        "their",
        "this",
        "to",
        "was",
        "we",
        "were",
        "will",
        "with",
        "you",
        "your",
    )
)


def words(text: str) -> list[str]:
    """The words of a text in lower case, without those that say nothing."""
    return [word for word in WORD.findall(text.casefold()) if word not in STOP_WORDS]


def url_text(url: str) -> str:
    """What a URL says in words: its path without extension, and its query. "/getStarted.html" is
    "get started".
    """
    parts = urlsplit(url)
    path = EXTENSION.sub("", parts.path.rstrip("/"))
    spaced = CAMEL.sub(" ", unquote(f"{path} {parts.query}"))
    return " ".join(WORD.findall(spaced)).lower()


def cosine(a: Floats, b: Floats) -> float:
    """Between two vectors; 0 where one is empty."""
    size = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / size if size > 0 else 0.0


class TextVectors:
    """Vectors of texts; what a word hashes to is remembered for so many words."""

    def __init__(self, dimension: int = 512, remembered_words: int = 20_000) -> None:
        if dimension < 16 or remembered_words < 1:
            raise SettingsError(
                "text vectors need a dimension of 16 or more and at least one remembered word, not "
                f"dimension={dimension}, remembered_words={remembered_words}"
            )
        self.dimension, self.remembered_words = dimension, remembered_words
        self._forget()

    def _forget(self) -> None:
        self._rows: dict[str, int] = {}
        self._slots = np.zeros((256, WORD_FEATURES), np.int64)  # (word, feature) where it counts
        self._values = np.zeros((256, WORD_FEATURES))  # and how much; 0 for those it has not

    def matrix(self, texts: Sequence[str]) -> Floats:
        """(text, dimension): one vector per text, of length 1, or 0 where a text has no words."""
        split = [words(text) for text in texts]
        rows = self._rows_of([word for one in split for word in one])
        owner = np.repeat(np.arange(len(texts)), [len(one) for one in split])
        slots = self._slots[rows] + (owner * self.dimension)[:, None]
        sums = np.bincount(slots.ravel(), self._values[rows].ravel(), len(texts) * self.dimension)
        dense: Floats = sums.astype(np.float32).reshape(len(texts), self.dimension)
        lengths = np.linalg.norm(dense, axis=1, keepdims=True)
        dense /= np.where(lengths > 0, lengths, 1)
        return dense

    def vector(self, text: str) -> Floats:
        """(dimension,) of one text."""
        return self.matrix([text])[0]

    def _rows_of(self, found: list[str]) -> NDArray[np.int64]:
        """Where the words stand in the tables; new ones are entered."""
        new = [word for word in dict.fromkeys(found) if word not in self._rows]
        if len(self._rows) + len(new) > self.remembered_words:
            self._forget()
            new = list(dict.fromkeys(found))
        while len(self._rows) + len(new) > len(self._slots):
            self._slots, self._values = (
                np.concatenate([x, np.zeros_like(x)]) for x in (self._slots, self._values)
            )
        for word in new:
            self._rows[word] = row = len(self._rows)
            slots, values = word_features(word, self.dimension)
            self._slots[row, : len(slots)], self._values[row, : len(slots)] = slots, values
        return np.array([self._rows[word] for word in found], np.int64)


def word_features(word: str, dimension: int) -> tuple[list[int], list[float]]:
    """Slots and signed values: half of a word's weight is the word itself, half its n-grams."""
    bounded = f"<{word[:LONGEST_WORD]}>"
    grams = [bounded[k : k + n] for n in NGRAMS for k in range(len(bounded) - n + 1)][
        : WORD_FEATURES - 1
    ]
    hashes = [zlib.crc32(part.encode()) for part in (f"={word}", *grams)]
    part = len(grams) ** -0.5 if grams else 0.0
    weights = [1.0, *([part] * len(grams))]
    signed = [
        weight if (found >> 16) & 1 else -weight
        for found, weight in zip(hashes, weights, strict=True)
    ]
    return [found % dimension for found in hashes], signed


class Topic:
    """What is looked for, as a vector; similarities of texts seen before are remembered, up to a
    number of them.
    """

    def __init__(
        self, text: str, vectors: TextVectors | None = None, remembered_texts: int = 100_000
    ) -> None:
        self.text, self.vectors, self.remembered_texts = (
            text,
            vectors or TextVectors(),
            remembered_texts,
        )
        self.vector = self.vectors.vector(text)
        self._known: dict[str, float] = {}

    def similarities(self, texts: Sequence[str]) -> Floats:
        """(text,) cosines with the topic."""
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        if len(self._known) + len(new) > self.remembered_texts:
            self._known.clear()
            new = list(dict.fromkeys(texts))
        if new:
            self._known.update(
                zip(new, (self.vectors.matrix(new) @ self.vector).tolist(), strict=True)
            )
        return np.array([self._known[text] for text in texts], np.float32)
