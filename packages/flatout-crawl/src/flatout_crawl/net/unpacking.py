"""Bodies as they come over the wire, made whole under limits: a small file must not become a large
one unnoticed.
"""

import zlib

ENCODINGS = ("", "identity", "gzip", "x-gzip", "deflate")
ACCEPTED = "gzip, deflate"
AUTOMATIC, RAW = 47, -15  # zlib's words for: gzip or zlib by the header; no header at all
MOST_MEMBERS = 64  # of one gzip file
GZIP_MAGIC = b"\x1f\x8b"
HARMLESS_BYTES = 1 << 20  # up to here the ratio does not matter


class TooLargeError(Exception):
    """The body exceeds a limit."""


class UnreadableError(Exception):
    """The body is not what its encoding says."""


class Unpacker:
    """Takes pieces, gives them decompressed, and stops at the limits."""

    def __init__(self, encoding: str, most_bytes: int, most_ratio: float) -> None:
        self.packed = encoding not in ("", "identity")
        # some servers leave out the header that the standard wants
        self.may_be_raw = encoding == "deflate"
        self.most_bytes, self.most_ratio = most_bytes, most_ratio
        self.taken = 0  # bytes that came
        self.body = bytearray()
        self.head = b""
        self.members = 0
        self.ended = False  # nothing more is wanted
        self.stream: zlib._Decompress | None = None

    def feed(self, piece: bytes) -> None:
        """Take a piece; raises TooLargeError or UnreadableError."""
        self.taken += len(piece)
        if not self.packed:
            self.body += piece[: self.most_bytes + 1 - len(self.body)]
        if self.taken > self.most_bytes:
            raise TooLargeError
        if not self.packed:
            return
        try:
            self.inflate(self.head + piece)
        except zlib.error as error:
            raise UnreadableError(str(error)) from error

    def finish(self) -> bytes:
        """The whole body; raises UnreadableError if the end is missing."""
        if self.packed and self.taken and (self.stream is None or not self.stream.eof):
            raise UnreadableError("the compressed body breaks off")
        return bytes(self.body)

    def inflate(self, piece: bytes) -> None:
        """Decompress a piece; a gzip file may have several members, and what else follows the end
        is nobody's.
        """
        self.head = b""
        while piece and not self.ended:
            if self.stream is None or self.stream.eof:
                if len(piece) < 2:
                    self.head = piece  # too short to tell what it is
                    return
                self.ended = self.stream is not None and (
                    self.may_be_raw or not piece.startswith(GZIP_MAGIC)
                )
                if self.ended:
                    return
                self.stream = self.next_stream(piece)
            piece = self.step(self.stream, piece)

    def next_stream(self, piece: bytes) -> "zlib._Decompress":
        """A decompressor for what begins here."""
        self.members += 1
        if self.members > MOST_MEMBERS:
            raise TooLargeError
        headless = self.may_be_raw and (piece[0] & 15 != 8 or int.from_bytes(piece[:2], "big") % 31)
        return zlib.decompressobj(RAW if headless else AUTOMATIC)

    def step(self, stream: "zlib._Decompress", piece: bytes) -> bytes:
        """Decompress as much as the limits allow; gives back what follows its end."""
        room = min(self.most_bytes, max(HARMLESS_BYTES, int(self.taken * self.most_ratio)))
        self.body += stream.decompress(piece, room - len(self.body) + 1)
        if len(self.body) > room:
            raise TooLargeError
        return stream.unused_data
