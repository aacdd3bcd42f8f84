"""Which URLs may be asked for: one spelling per URL, and an allow-list. It knows names and paths,
not addresses: what a name resolves to is checked in `addresses.py`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple, Self
from urllib.parse import unquote, urljoin

from yarl import URL

from flatout.errors import SettingsError
from flatout.foreign import shorten_repr

LONGEST_URL = 2000
WEB_PORTS = frozenset({80, 443})
SCHEMES = ("http", "https")
ROBOTS_PATH = "/robots.txt"
# Below these, under a country's domain, names belong to many owners: "*.co.uk" is no one's site.
SHARED_LABELS = frozenset({"ac", "co", "com", "edu", "gob", "gov", "go", "ne", "net", "or", "org"})

has_control = re.compile(
    r"[\x00-\x1f\x7f-\x9f\\]"
).search  # backslashes too: some servers read them as slashes
is_host_name = re.compile(
    r"(?!.*-\.)[a-z0-9_][a-z0-9_-]{0,62}(\.[a-z0-9_][a-z0-9_-]{0,62})*"
).fullmatch
is_numeric_label = re.compile(r"[0-9]+|0x[0-9a-f]*").fullmatch
is_entry = re.compile(
    r"(?P<wide>\*\.)?(?P<host>\[[^]/]+\]|[^:/\[\]*@?#]+)(:(?P<port>[0-9]{1,5}))?(?P<path>/.*)?"
).fullmatch


def canonical(url: str, base: str | None = None) -> str | None:
    """The one spelling of a URL, resolved against `base`; None if it must not or cannot be
    crawled.
    """
    # a long one would be remembered, too
    return None if len(url) > 2 * LONGEST_URL else spell_url(url, base)


@lru_cache(maxsize=8192)
def spell_url(url: str, base: str | None) -> str | None:
    """The canonical spelling of a URL, remembered for the last of them."""
    url = url.strip(" \t\r\n\f")
    if len(url) > LONGEST_URL or has_control(url):
        return None
    try:
        parts = URL(
            url if base is None else urljoin(base, url)
        )  # yarl's own join decodes the base's path
        host = plain_host(parts.raw_host or "")
        if (
            parts.scheme not in SCHEMES
            or not host
            or parts.raw_user is not None
            or parts.raw_password is not None
        ):
            return None
        if not parts.port or climbs(parts.raw_path):
            return None
        name = f"[{host}]" if ":" in host else host
        port = "" if parts.is_default_port() else f":{parts.port}"
        query = f"?{parts.raw_query_string}" if parts.raw_query_string else ""
        made = f"{parts.scheme}://{name}{port}{parts.raw_path or '/'}{query}"
    except (ValueError, IndexError):  # yarl's words for: not a URL; the second of "http://[::1]@"
        return None
    return made if len(made) <= LONGEST_URL and made.isascii() and " " not in made else None


def plain_host(host: str) -> str:
    """A host name in lower case without its trailing dot, or a canonical address; "" for anything
    else.
    """
    host = host.lower().removesuffix(".")
    if ":" in host:
        return str(IPv6Address(host)) if "%" not in host else ""
    if len(host) > 253 or not is_host_name(host):
        return ""
    if is_numeric_label(
        host.rsplit(".", 1)[-1]
    ):  # "127.1", "2130706433", "0x7f.1": read as addresses by resolvers
        return host if is_canonical_ipv4(host) else ""
    return host


def is_canonical_ipv4(host: str) -> bool:
    """Whether this is four decimal numbers without leading zeros."""
    try:
        return str(IPv4Address(host)) == host
    except ValueError:
        return False


def climbs(path: str) -> bool:
    """Whether a server that decodes once more than others could read this path as another one."""
    decoded = path
    for _ in range(3):
        decoded = unquote(decoded, errors="replace")
    if has_control(decoded):
        return True
    return any(segment.split(";", 1)[0] in (".", "..") for segment in decoded.split("/"))


class Origin(NamedTuple):
    """The server that a URL asks: scheme, host and port."""

    scheme: str
    host: str
    port: int

    @property
    def url(self) -> str:
        """The origin's root, canonical."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        made = canonical(f"{self.scheme}://{host}:{self.port}/")
        if made is None:
            raise SettingsError(
                f"{self}: not an origin; give scheme http or https, a host and a port"
            )
        return made


@lru_cache(maxsize=8192)
def origin_of(url: str) -> Origin:
    """Whom a canonical URL asks."""
    parts = URL(url, encoded=True)
    return Origin(parts.scheme, parts.raw_host or "", parts.port or 0)


class AllowedPlace(NamedTuple):
    """One entry of an allow-list."""

    host: str
    below: bool  # hosts below it too
    ports: frozenset[int]
    prefix: str  # of the path, without its last slash: "" for everything

    def holds_host(self, origin: Origin) -> bool:
        """Whether this host and port are meant."""
        same = origin.host == self.host or (self.below and origin.host.endswith("." + self.host))
        return same and origin.port in self.ports

    def holds_path(self, path: str) -> bool:
        """Whether the path is the prefix or below it; "/docs" is no prefix of "/docs-private"."""
        return path == self.prefix or path.startswith(self.prefix + "/")


@dataclass(frozen=True)
class Scope:
    """What may be asked for. Everything else is refused, and there is no way to allow
    everything.
    """

    places: tuple[AllowedPlace, ...]

    def __post_init__(self) -> None:
        if not self.places:
            raise SettingsError(
                "the allow-list is empty; name the hosts that may be crawled, such as "
                '"docs.example.org" or '
                '"docs.example.org/reference/"'
            )

    @classmethod
    def parse(cls, entries: Iterable[str]) -> Self:
        """From "docs.example.org", "docs.example.org/reference/", "*.example.org" or
        "127.0.0.1:8080".
        """
        if isinstance(entries, str):
            raise SettingsError(
                f"{entries!r}: the allow-list is a list of entries; write [{entries!r}]"
            )
        return cls(tuple(place_of(entry) for entry in entries))

    def allows(self, url: str) -> bool:
        """Whether this URL may be asked for."""
        known = canonical(url)
        if known is None:
            return False
        origin, path = origin_of(known), URL(known, encoded=True).raw_path
        return any(place.holds_host(origin) and place.holds_path(path) for place in self.places)

    def allows_host(self, url: str) -> bool:
        """Whether something at this host may be asked for, and so its robots.txt."""
        known = canonical(url)
        return known is not None and any(
            place.holds_host(origin_of(known)) for place in self.places
        )

    def allows_robots(self, url: str) -> bool:
        """Whether this URL may be asked for where robots.txt is wanted: it, or what it redirects to
        on the list.
        """
        known = canonical(url)
        is_robots = known is not None and URL(known, encoded=True).raw_path_qs == ROBOTS_PATH
        return self.allows_host(url) if is_robots else self.allows(url)


def place_of(entry: str) -> AllowedPlace:
    """One entry, read strictly: what cannot be understood is an error, never a guess."""
    found = is_entry(entry.strip())
    if found is None or "://" in entry or has_control(entry):
        raise bad_entry(entry, "it is not host, host:port, host/path or *.domain, without http://")
    wide, port, path = bool(found["wide"]), found["port"], found["path"] or "/"
    url = canonical(f"http://{found['host']}:{port or 80}{path}")
    if url is None or "?" in path or "#" in path:
        raise bad_entry(entry, "its host, port or path is not one that can be crawled")
    host = origin_of(url).host
    if wide:
        check_wide(entry, host)
    ports = frozenset({int(port)}) if port else WEB_PORTS
    return AllowedPlace(host, wide, ports, URL(url, encoded=True).raw_path.rstrip("/"))


def check_wide(entry: str, host: str) -> None:
    """Refuse a domain that is not one owner's."""
    labels = host.split(".")
    if ":" in host or is_canonical_ipv4(host):
        raise bad_entry(entry, "addresses have no hosts below them")
    if len(labels) < 2 or (len(labels) == 2 and labels[0] in SHARED_LABELS and len(labels[1]) == 2):
        raise bad_entry(entry, "that domain has many owners")


def bad_entry(entry: str, why: str) -> SettingsError:
    return SettingsError(
        f"{shorten_repr(entry)} cannot stand on the allow-list: {why}; write entries such as "
        '"docs.example.org", "docs.example.org/reference/", "*.example.org" or "127.0.0.1:8080"'
    )
