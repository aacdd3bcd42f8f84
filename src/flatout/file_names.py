"""File names from texts that people choose, such as symbols and names of studies: safe, readable,
and reversible.
"""

import re
import unicodedata
from urllib.parse import unquote

from flatout.errors import RunError

PLAIN = "_.,=+@ -"
LONGEST = 120  # bytes; a file system takes 255, and there is something before and after the name
RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)  # no files on Windows


def file_name(text: str) -> str:
    """A name for one file or folder: whatever could mean a path, a hidden file or an option is
    written as %2F.
    """
    if not text:
        raise RunError("an empty name cannot be a file's: give at least one character")
    name = "".join(letter if is_plain(letter) else encode_letter(letter) for letter in text)
    if name[0] in ".- " or RESERVED.fullmatch(name):
        name = encode_letter(name[0]) + name[1:]
    if name[-1] in ". ":
        name = name[:-1] + encode_letter(name[-1])
    size = len(name.encode())
    if size > LONGEST:
        raise RunError(
            f"the name {text[:40]!r}… is too long for a file's: {size} bytes; {LONGEST} are allowed"
        )
    return name


def is_plain(letter: str) -> bool:
    """Whether a letter is left as it is. One that Unicode also writes as several is not: some
    systems change the one into the other.
    """
    return letter in PLAIN or (letter.isalnum() and not unicodedata.decomposition(letter))


def encode_letter(letter: str) -> str:
    """A letter as the bytes of its UTF-8, each as %2F."""
    return "".join(f"%{byte:02X}" for byte in letter.encode("utf-8", "surrogatepass"))


def decode_file_name(name: str) -> str:
    """The text that a file's name was made from."""
    return unquote(name, errors="surrogatepass")
