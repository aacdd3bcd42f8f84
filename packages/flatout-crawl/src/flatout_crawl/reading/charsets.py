"""Bytes of pages to UTF-8, as browsers read them: by byte order mark or declaration, never by
guessing.
"""

import codecs
import re

CHARSET = re.compile(
    rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([a-zA-Z0-9_.:-]{2,40})""", re.IGNORECASE
)
BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# What browsers know; Python knows more codecs, and not all of those are for text.
CHARSETS = re.compile(
    r"utf-8|cp125\d|cp874|iso8859-\d+|koi8-[ru]|mac-roman|gbk|gb18030|gb2312|big5|euc_(jp|kr)|shift_jis"
)


def decode_body(body: bytes) -> bytes:
    """The body as UTF-8, by byte order mark or declared charset; what cannot be read is marked, not
    refused.
    """
    for mark, charset in BYTE_ORDER_MARKS:
        if body.startswith(mark):
            return body[len(mark) :].decode(charset, "replace").encode("utf-8", "replace")
    declared = CHARSET.search(body, 0, 1_024)
    charset = known_charset(declared[1].decode("ascii")) if declared else "utf-8"
    if charset == "utf-8":
        return body  # the parser marks what is not UTF-8
    return body.decode(charset, "replace").encode("utf-8", "replace")


def known_charset(name: str) -> str:
    """Python's name of a charset, as browsers understand it; UTF-8 if they do not."""
    try:
        known = codecs.lookup(name).name
    except LookupError:
        return "utf-8"
    if known in ("ascii", "iso8859-1"):
        return "cp1252"
    return known if CHARSETS.fullmatch(known) else "utf-8"
