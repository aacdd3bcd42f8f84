"""Which addresses may be dialled: public ones, and those loopback ports that were named as a
laboratory.

Names prove nothing, since whoever owns a name chooses its address and may change it between two
lookups. So the answers of the resolver are checked, and the address that is really dialled is
checked again.
"""

import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, Self

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver

from flatout.errors import FlatoutError, SettingsError
from flatout.foreign import shorten_repr
from flatout_crawl.net.scope import is_canonical_ipv4, plain_host

NAT64 = IPv6Network("64:ff9b::/96")
UNICAST = IPv6Network("2000::/3")  # all that IPv6 gives out so far

# What the registries of IANA keep from the public, whatever this version of Python knows about it.
SPECIAL = tuple(
    (ip_network(network), why)
    for network, why in (
        ("0.0.0.0/8", "unspecified"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "shared by a provider's customers"),
        ("127.0.0.0/8", "loopback"),
        ("168.63.129.16/32", "a cloud's metadata"),
        ("169.254.0.0/16", "link-local, where clouds keep their metadata"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved for protocols"),
        ("192.0.2.0/24", "for documentation"),
        ("192.88.99.0/24", "a relay of 6to4"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "for benchmarks"),
        ("198.51.100.0/24", "for documentation"),
        ("203.0.113.0/24", "for documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "site-local"),
        ("ff00::/8", "multicast"),
        ("2001::/23", "reserved for protocols, Teredo among them"),
        ("2001:db8::/32", "for documentation"),
        ("3fff::/20", "for documentation"),
    )
)


class ForbiddenAddressError(FlatoutError):
    """An address that must not be dialled. Not an OSError: nobody shall try the next one
    instead.
    """


@lru_cache(maxsize=1024)
def refusal(ip: str | IPv4Address | IPv6Address) -> str:
    """Why this address must not be dialled; "" if it may."""
    try:
        address = ip_address(ip)
    except ValueError:
        return "not an address"
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            return "link-local"
        for inner, how in carried_addresses(address):
            if why := refusal(inner):
                return f"{how} {inner}: {why}"
        if address in NAT64 or address.ipv4_mapped is not None:
            return ""  # it stands for the IPv4 address, which is fine
    for network, why in SPECIAL:
        if address.version == network.version and address in network:
            return why
    if isinstance(address, IPv6Address) and address not in UNICAST:
        return "reserved"
    return "" if address.is_global and not address.is_multicast else "not public"


def carried_addresses(address: IPv6Address) -> list[tuple[IPv4Address, str]]:
    """The IPv4 addresses within an IPv6 address, and how they are carried."""
    inner = []
    if address.ipv4_mapped is not None:
        inner.append((address.ipv4_mapped, "mapped"))
    if address.sixtofour is not None:
        inner.append((address.sixtofour, "6to4 of"))
    if address.teredo is not None:
        inner += [(part, "Teredo of") for part in address.teredo]
    if address in NAT64:
        inner.append((IPv4Address(int(address) & 0xFFFFFFFF), "NAT64 of"))
    return inner


@dataclass(frozen=True)
class Lab:
    """Loopback addresses and ports that may be dialled although they are not public: a server of
    one's own.
    """

    doors: frozenset[tuple[str, int]] = frozenset()

    @classmethod
    def parse(cls, entries: Iterable[str]) -> Self:
        """From "127.0.0.1:8123" or "[::1]:8123"."""
        if isinstance(entries, str):
            raise SettingsError(
                f"{entries!r}: the laboratory is a list of addresses; write [{entries!r}]"
            )
        return cls(frozenset(door_of(entry) for entry in entries))

    def holds(self, host: str, port: int) -> bool:
        """Whether this address, not a name for it, was named."""
        return (host, port) in self.doors


NO_LAB = Lab()


def door_of(entry: str) -> tuple[str, int]:
    """Address and port of one entry."""
    host, _, port = entry.strip().rpartition(":")
    try:
        address = ip_address(host[1:-1] if host.startswith("[") and host.endswith("]") else host)
    except ValueError:
        address = None
    is_port = re.fullmatch(r"[0-9]{1,5}", port) is not None and 0 < int(port) < 65536
    if address is None or not address.is_loopback or not is_port:
        raise SettingsError(
            f"{shorten_repr(entry)} cannot be a laboratory: only a loopback address with a port "
            "can, such as 127.0.0.1:8123; public hosts belong on the allow-list"
        )
    return str(address), int(port)


@dataclass(frozen=True)
class Guard:
    """Says no to every address that must not be dialled."""

    lab: Lab = NO_LAB

    def check(self, host: str, port: int, named: str = "") -> None:
        """Raise ForbiddenAddressError unless this address may be dialled."""
        why = refusal(host)
        if why and not self.lab.holds(host, port):
            shown = f"{named!r} is {host}" if named else host
            raise ForbiddenAddressError(
                f"{shown}, port {port}, must not be dialled: {why}; only public addresses may"
            )

    def open_socket(self, info: Any) -> socket.socket:
        """What aiohttp calls with the address it is about to dial, whichever way it came by it."""
        family, kind, protocol, _, address = info
        self.check(str(address[0]), int(address[1]))
        return socket.socket(family=family, type=kind, proto=protocol)


class GuardedResolver(AbstractResolver):
    """A resolver whose answer is refused as a whole if one address in it is: a public one beside it
    excuses nothing.

    The laboratory does not count here: it is reached by address, and a name that leads to loopback
    is an attack.
    """

    def __init__(self, inner: AbstractResolver | None = None) -> None:
        self.inner = inner or ThreadedResolver()
        self.guard = Guard()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The addresses of a name."""
        if not host or plain_host(host) != host or ":" in host or is_canonical_ipv4(host):
            raise ForbiddenAddressError(
                f"{host!r} is no host name; spell addresses as four decimal numbers or in brackets"
            )
        found = await self.inner.resolve(host, port, family)
        for entry in found:
            self.guard.check(entry["host"], port, named=host)
        return found

    async def close(self) -> None:
        """Close the resolver within."""
        await self.inner.close()
