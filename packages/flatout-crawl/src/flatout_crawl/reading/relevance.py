"""How well a page fits what is looked for: pure functions of the page and its body, from 0 to 1.

Each also has a `topic`, a short text that links are compared with before their pages are known.
This file knows nothing about links, requests or rewards.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, cast

from selectolax.lexbor import LexborHTMLParser, SelectolaxError

from flatout.errors import SettingsError
from flatout.foreign import read_file, shorten_repr
from flatout_crawl.reading.charsets import decode_body
from flatout_crawl.reading.page import Page
from flatout_crawl.reading.searching import MOST_BYTES, SEARCHER, compile_pattern
from flatout_crawl.reading.text import words

SATURATION, LENGTH_SHARE, USUAL_LETTERS = (
    1.2,
    0.75,
    3000.0,
)  # k1 and b of BM25, and the length that counts as usual
TITLE_COUNTS = 3  # a word in the title is worth this many in the text
# of a page that counts as wholly relevant, where a single example cannot tell
FULL_SIMILARITY = 0.5
TOPIC_WORDS = 12
LONGEST_PATTERN = 2_000  # letters of a regular expression or a selector
EXAMPLE_BYTES = 16 << 20  # of one example text


class Relevance(Protocol):
    """A rule that says what a page is worth."""

    @property
    def topic(self) -> str:
        """Words that links are compared with."""
        ...

    def __call__(self, page: Page, body: bytes) -> float:
        """The relevance of a page, from 0 to 1."""
        ...


@dataclass(frozen=True)
class Keywords:
    """How many of the words or phrases a page has, each the more the oftener (BM25 without a
    corpus).
    """

    phrases: tuple[str, ...]  # "solar power" counts where both stand side by side

    def __post_init__(self) -> None:
        if not self.phrases or not all(phrase.strip() for phrase in self.phrases):
            raise SettingsError(
                "keywords must be one or more words or phrases, not "
                f"{shorten_repr(list(self.phrases))}"
            )

    @property
    def topic(self) -> str:
        """The keywords themselves, as words to compare links with."""
        return " ".join(self.phrases)

    @cached_property
    def _patterns(self) -> tuple[re.Pattern[str], ...]:
        spaced = [
            r"\W+".join(re.escape(word) for word in phrase.casefold().split())
            for phrase in self.phrases
        ]
        return tuple(re.compile(rf"(?<!\w){one}(?!\w)") for one in spaced)

    def __call__(self, page: Page, body: bytes) -> float:
        """The mean over keywords of a count that saturates, less so in long texts."""
        text, title = page.text.casefold(), page.title.casefold()
        # not below 1: a word that stands once in a short text still stands there once
        length = max(1.0, len(text) / USUAL_LETTERS)
        damping = SATURATION * (1 - LENGTH_SHARE + LENGTH_SHARE * length)
        counts = [
            len(one.findall(text)) + TITLE_COUNTS * len(one.findall(title))
            for one in self._patterns
        ]
        return sum(count / (count + damping) for count in counts) / len(counts)


@dataclass(frozen=True)
class Examples:
    """How near a page is to the nearest of some example texts: TF-IDF cosine.

    Rare words weigh more; what is rare is learned from the examples and `background`, texts about
    other things. Relevance 1 is a similarity as large as the examples have among themselves.
    """

    texts: tuple[str, ...]
    background: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        empty = [k for k, text in enumerate(self.texts) if not words(text)]
        if not self.texts or empty:
            raise SettingsError(
                f"examples must be one or more texts with words in them: {len(self.texts)} were "
                f"given, of which {len(empty)} are empty"
            )

    @classmethod
    def of_pages(cls, pages: Iterable[Page], background: Iterable[Page] = ()) -> "Examples":
        """Examples that were read."""
        return cls(
            *(tuple(f"{page.title} {page.text}" for page in some) for some in (pages, background))
        )

    @cached_property
    def _rarity(self) -> dict[str, float]:
        documents = [set(words(text)) for text in (*self.texts, *self.background)]
        seen = Counter(word for one in documents for word in one)
        return {word: math.log1p(len(documents) / count) for word, count in seen.items()}

    @cached_property
    def _vectors(self) -> tuple[dict[str, float], ...]:
        return tuple(self._vector(text) for text in self.texts)

    @cached_property
    def _full(self) -> float:
        others = [
            max(_dot(one, other) for k, other in enumerate(self._vectors) if k != j)
            for j, one in enumerate(self._vectors)
            if len(self._vectors) > 1
        ]
        found = sum(others) / len(others) if others else FULL_SIMILARITY
        return min(max(found, 0.1), 1.0)

    @property
    def topic(self) -> str:
        """The words that weigh most in the examples."""
        total: Counter[str] = Counter()
        for vector in self._vectors:
            total.update(vector)
        return " ".join(
            word
            for word, _ in sorted(total.items(), key=lambda item: (-item[1], item[0]))[:TOPIC_WORDS]
        )

    def _vector(self, text: str) -> dict[str, float]:
        rarest = math.log1p(
            len(self.texts) + len(self.background)
        )  # of a word that is in none of them
        raw = {
            word: (1 + math.log(n)) * self._rarity.get(word, rarest)
            for word, n in Counter(words(text)).items()
        }
        length = math.sqrt(sum(value * value for value in raw.values())) or 1.0
        return {word: value / length for word, value in raw.items()}

    def __call__(self, page: Page, body: bytes) -> float:
        """Similarity to the nearest example, as a share of that among examples."""
        own = self._vector(f"{page.title} {page.text}")
        return min(1.0, max(_dot(example, own) for example in self._vectors) / self._full)


def _dot(a: dict[str, float], b: dict[str, float]) -> float:
    small, large = (a, b) if len(a) < len(b) else (b, a)
    return sum(value * large.get(word, 0.0) for word, value in small.items())


def check_pattern(pattern: str) -> None:
    """Refuse a pattern that is longer than anybody writes."""
    if len(pattern) > LONGEST_PATTERN:
        raise SettingsError(
            f"a pattern of {len(pattern):,} letters, {shorten_repr(pattern)}: at most "
            f"{LONGEST_PATTERN:,} are taken"
        )


@dataclass(frozen=True)
class Matches:
    """1 where a regular expression is found in the title or text, else 0, also where the search
    takes too long.
    """

    pattern: str
    topic: str = ""

    def __post_init__(self) -> None:
        check_pattern(self.pattern)
        try:
            compile_pattern(self.pattern)
        except (re.error, OverflowError, RecursionError) as reason:
            raise SettingsError(
                f"{shorten_repr(self.pattern)} is no regular expression: {reason}"
            ) from None

    def __call__(self, page: Page, body: bytes) -> float:
        """1 if the pattern is found, else 0."""
        texts = (page.title, page.text)
        return float(
            any(
                SEARCHER.find("regex", self.pattern, one.encode("utf-8", "replace"))
                for one in texts
            )
        )


@dataclass(frozen=True)
class Selects:
    """1 where a CSS selector finds an element in the body, else 0, also where the search takes too
    long.
    """

    selector: str
    topic: str = ""

    def __post_init__(self) -> None:
        check_pattern(self.selector)
        try:
            LexborHTMLParser("<p></p>").css_first(self.selector)
        except (SelectolaxError, UnicodeError):
            raise SettingsError(
                f"{shorten_repr(self.selector)} is no CSS selector; one is 'table.data'"
            ) from None

    def __call__(self, page: Page, body: bytes) -> float:
        """1 if the selector finds something, else 0."""
        return float(SEARCHER.find("css", self.selector, decode_body(body[:MOST_BYTES])) is True)


@dataclass(frozen=True)
class KnownTargets:
    """1 for pages under these URLs, else 0: where the truth is known, as on a site made for
    training.
    """

    urls: frozenset[str]
    topic: str = ""

    def __call__(self, page: Page, body: bytes) -> float:
        """1 if the page is a known target, else 0."""
        return float(page.url in self.urls)


@dataclass(frozen=True)
class Judged:
    """Whatever a function of page and body says."""

    function: Callable[[Page, bytes], float]
    topic: str = ""

    def __call__(self, page: Page, body: bytes) -> float:
        """What it says, if that is from 0 to 1."""
        value = float(self.function(page, body))
        if not 0 <= value <= 1:  # NaN is refused too
            raise SettingsError(
                f"a relevance must be from 0 to 1; {self.function!r} gave {value} for {page.url}"
            )
        return value


@dataclass(frozen=True)
class AnyOf:
    """The largest of several."""

    parts: tuple[Relevance, ...] = field(default=())

    def __post_init__(self) -> None:
        if not self.parts:
            raise SettingsError(
                "no relevance was given; give one, such as 'keywords:solar power,wind'"
            )

    @property
    def topic(self) -> str:
        """The words of all rules together."""
        return " ".join(part.topic for part in self.parts if part.topic)

    def __call__(self, page: Page, body: bytes) -> float:
        """The largest relevance that any of the rules gives."""
        return max(part(page, body) for part in self.parts)


KINDS = {
    "keywords": "words or phrases, separated by commas",
    "examples": "files with example texts, separated by commas",
    "regex": "a regular expression",
    "css": "a CSS selector",
}


def parse_relevance(
    spec: str | Sequence[str] | Mapping[str, Any] | Callable[[Page, bytes], float],
) -> Relevance:
    """From what a user writes: "keywords:solar power,wind", several of those (any counts), a
    mapping such as {"regex": "deprecated", "topic": "old functions"}, or a function of page and
    body.
    """
    if isinstance(spec, Mapping):
        return _from_mapping(spec)
    if isinstance(spec, str):
        return _from_words(spec)
    if callable(spec):
        return cast(Relevance, spec) if hasattr(spec, "topic") else Judged(spec)
    parts = tuple(_from_words(one) for one in spec)
    return parts[0] if len(parts) == 1 else AnyOf(parts)


def _from_words(spec: str) -> Relevance:
    kind, colon, rest = spec.partition(":")
    if not colon or kind.strip() not in KINDS or not rest.strip():
        raise _refusal(shorten_repr(spec))
    kind, rest = kind.strip(), rest.strip()
    return _from_mapping({kind: _split_words(rest) if kind in ("keywords", "examples") else rest})


def _from_mapping(spec: Mapping[str, Any]) -> Relevance:
    kinds = [kind for kind in KINDS if kind in spec]
    unknown = set(spec) - {*KINDS, "topic", "background"}
    if unknown or not kinds:
        raise _refusal(f"a mapping with {shorten_repr(sorted(spec)) if spec else 'nothing'}")
    topic = str(spec.get("topic", ""))
    made: dict[str, Callable[[Any], Relevance]] = {
        "keywords": lambda given: Keywords(several(given)),
        "examples": lambda given: Examples(
            _read(several(given)), _read(several(spec.get("background", ())))
        ),
        "regex": lambda given: Matches(str(given), topic),
        "css": lambda given: Selects(str(given), topic),
    }
    parts = tuple(made[kind](spec[kind]) for kind in kinds)
    return parts[0] if len(parts) == 1 else AnyOf(parts)


def several(given: str | Sequence[str]) -> tuple[str, ...]:
    """Texts in a list, or in one text with commas between them."""
    if isinstance(given, str):
        return _split_words(given)
    if not isinstance(given, Sequence) or not all(isinstance(one, str) for one in given):
        raise SettingsError(
            f"a relevance takes texts, or a list of texts, not {shorten_repr(given)}"
        )
    return tuple(given)


def _split_words(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _read(paths: tuple[str, ...]) -> tuple[str, ...]:
    cure = "give a file to take an example text from"
    return tuple(
        read_file(Path(path), EXAMPLE_BYTES, SettingsError, cure).decode("utf-8", "replace")
        for path in paths
    )


def _refusal(given: str) -> SettingsError:
    allowed = "; ".join(f"{kind}: {meaning}" for kind, meaning in KINDS.items())
    return SettingsError(
        f"a relevance must be one of ({allowed}), such as 'keywords:solar power,wind', not {given}"
    )
