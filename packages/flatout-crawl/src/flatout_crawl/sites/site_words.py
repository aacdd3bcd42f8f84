"""Words of a made-up site: pronounceable, drawn from a seed, one vocabulary per topic and one that
all topics share.

It knows nothing of pages: only of words, titles and sentences.
"""

from dataclasses import dataclass
from random import Random

ONSETS = (
    *"bcdfghjklmnprstvwz",
    "br",
    "cl",
    "cr",
    "dr",
    "fl",
    "gr",
    "pl",
    "pr",
    "sk",
    "sl",
    "st",
    "th",
    "tr",
)
VOWELS = (*"aeiouaeio", "ai", "ea", "io", "ou")
CODAS = ["", "", "", "n", "r", "l", "s", "t", "m", "nd", "rt", "st", "ck"]
WORDS_PER_TOPIC = 60
KEYWORDS = 8
SHARED_WORDS = 180
TOPIC_SHARE = 0.35  # of the words in a sentence


@dataclass(frozen=True)
class Vocabulary:
    """All words of a site, by topic."""

    topics: tuple[tuple[str, ...], ...]
    shared: tuple[str, ...]
    topic: int  # the one that is looked for
    keywords: tuple[str, ...]  # of that topic: pages that are targets are full of them

    def title(self, rng: Random, topic: int, keywords: int = 0) -> str:
        """Three to five words of a topic, this many of them keywords."""
        words = [rng.choice(self.plain(topic)) for _ in range(rng.randint(3, 5) - keywords)]
        words += [rng.choice(self.keywords) for _ in range(keywords)]
        rng.shuffle(words)
        return " ".join(words).capitalize()

    def sentence(self, rng: Random, topic: int, words: int, keyword_rate: float) -> str:
        """Words of a topic and of none, keywords at a rate."""
        plain, shared, keywords, chance = self.plain(topic), self.shared, self.keywords, rng.random
        drawn = []
        for _ in range(words):
            draw = chance()
            pool = (
                keywords
                if draw < keyword_rate
                else plain
                if draw < keyword_rate + TOPIC_SHARE
                else shared
            )
            drawn.append(pool[int(chance() * len(pool))])
        return " ".join(drawn).capitalize() + "."

    def paragraph(self, rng: Random, topic: int, words: int, keyword_rate: float) -> str:
        """A paragraph of sentences about a topic."""
        sentences = []
        while words > 0:
            length = rng.randint(6, 16)
            sentences.append(self.sentence(rng, topic, length, keyword_rate))
            words -= length
        return " ".join(sentences)

    def plain(self, topic: int) -> tuple[str, ...]:
        """A topic's words that are no keywords: those come first in the topic that is looked
        for.
        """
        words = self.topics[topic]
        return words[KEYWORDS:] if topic == self.topic else words


def draw_vocabulary(rng: Random, topics: int) -> Vocabulary:
    """Words that no other topic of the site has."""
    known: set[str] = set()
    while len(known) < topics * WORDS_PER_TOPIC + SHARED_WORDS:
        known.add(drawn_word(rng))
    words = sorted(known)
    rng.shuffle(words)
    parts = [tuple(words[k * WORDS_PER_TOPIC : (k + 1) * WORDS_PER_TOPIC]) for k in range(topics)]
    topic = rng.randrange(topics)
    return Vocabulary(
        tuple(parts), tuple(words[topics * WORDS_PER_TOPIC :]), topic, parts[topic][:KEYWORDS]
    )


def drawn_word(rng: Random) -> str:
    """Two or three syllables."""
    syllables = (
        f"{rng.choice(ONSETS)}{rng.choice(VOWELS)}{rng.choice(CODAS)}"
        for _ in range(rng.choice((2, 2, 3)))
    )
    return "".join(syllables)


def slug(title: str) -> str:
    """A title as part of a URL."""
    return title.lower().replace(" ", "-").strip(".-")
