"""Compressed bodies in any pieces, and never more than the limits."""

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatout_crawl.net.unpacking import (
    HARMLESS_BYTES,
    MOST_MEMBERS,
    TooLargeError,
    Unpacker,
    UnreadableError,
)

BODY = b"<p>some text and some more text</p>" * 50


def raw_deflate(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(body) + packer.flush()


PACKED = {
    "identity": [BODY],
    "": [BODY],
    "gzip": [
        gzip.compress(BODY),
        gzip.compress(BODY[:100]) + gzip.compress(BODY[100:]),
        gzip.compress(BODY) + b"junk",
    ],
    "x-gzip": [gzip.compress(BODY)],
    "deflate": [zlib.compress(BODY), raw_deflate(BODY), raw_deflate(BODY) + b"\0"],
}
CASES = [(encoding, packed) for encoding, many in PACKED.items() for packed in many]


def unpack(
    encoding: str, packed: bytes, sizes: list[int], most: int = 1 << 20, ratio: float = 100.0
) -> bytes:
    unpacker = Unpacker(encoding, most, ratio)
    while packed:
        size = sizes[0] if sizes else len(packed)
        sizes = sizes[1:]
        unpacker.feed(packed[:size])
        packed = packed[size:]
    return unpacker.finish()


@given(st.sampled_from(CASES), st.lists(st.integers(1, 40), max_size=60))
def test_pieces_make_the_whole(case: tuple[str, bytes], sizes: list[int]) -> None:
    encoding, packed = case
    assert unpack(encoding, packed, sizes) == BODY
    assert unpack(encoding, packed, [1] * len(packed)) == BODY


@given(
    st.sampled_from(["gzip", "deflate", "identity"]),
    st.binary(max_size=200),
    st.lists(st.integers(1, 9), max_size=30),
)
def test_any_bytes_are_read_or_refused(encoding: str, junk: bytes, sizes: list[int]) -> None:
    try:
        assert len(unpack(encoding, junk, sizes)) <= 1 << 20
    except (UnreadableError, TooLargeError):
        assert encoding != "identity"


def test_an_empty_body_is_empty() -> None:
    assert unpack("gzip", b"", []) == b""


@pytest.mark.parametrize("cut", [1, 5, 30, len(gzip.compress(BODY)) - 1])
def test_a_body_that_breaks_off_is_refused(cut: int) -> None:
    with pytest.raises(UnreadableError):
        unpack("gzip", gzip.compress(BODY)[:cut], [])


def test_limits() -> None:
    bomb = gzip.compress(bytes(8 * HARMLESS_BYTES))
    unpacker = Unpacker("gzip", 4 * HARMLESS_BYTES, 1e9)
    with pytest.raises(TooLargeError):
        unpacker.feed(bomb)
    assert len(unpacker.body) <= 4 * HARMLESS_BYTES + 1
    with pytest.raises(TooLargeError):  # not large, but 1000 to 1
        unpack("gzip", gzip.compress(bytes(2 * HARMLESS_BYTES)), [], most=4 * HARMLESS_BYTES)
    assert (
        len(unpack("gzip", gzip.compress(bytes(HARMLESS_BYTES)), [], most=4 * HARMLESS_BYTES))
        == HARMLESS_BYTES
    )
    with pytest.raises(TooLargeError):
        unpack("identity", bytes(101), [], most=100)
    with pytest.raises(TooLargeError):
        unpack("gzip", gzip.compress(b"x") * (MOST_MEMBERS + 1), [])
    assert unpack("gzip", gzip.compress(b"x") * MOST_MEMBERS, []) == b"x" * MOST_MEMBERS
