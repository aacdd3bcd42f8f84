"""Addresses that must not be dialled are refused in every disguise."""

import asyncio
import socket
from ipaddress import IPv4Address, IPv6Address

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult
from hypothesis import given
from hypothesis import strategies as st

from flatout.errors import SettingsError
from flatout_crawl.net.addresses import ForbiddenAddressError, Guard, GuardedResolver, Lab, refusal

INSIDE = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1",
    "127.255.255.254", "168.63.129.16",
    "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.1.1.1",
    "240.0.0.1", "255.255.255.255",
]  # fmt: skip
PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "93.184.216.34",
    "100.63.255.255",
    "100.128.0.1",
    "172.32.0.1",
    "198.20.0.1",
]
INSIDE_6 = [
    "::", "::1", "::2", "::127.0.0.1", "100::1", "fc00::1", "fd00:ec2::254", "fe80::1",
    "fe80::1%eth0", "fec0::1",
    "ff02::1", "2001::1", "2001:10::1", "2001:db8::1", "3fff::1", "64:ff9b:1::1", "4000::1",
    "5f00::1",
]  # fmt: skip


@pytest.mark.parametrize("ip", INSIDE + INSIDE_6 + ["localhost", "127.1", "0x7f.1", ""])
def test_what_is_not_public_is_refused(ip: str) -> None:
    assert refusal(ip)


@pytest.mark.parametrize(
    "ip", [*PUBLIC, "2606:4700:4700::1111", "2a00:1450::1", "64:ff9b::808:808"]
)
def test_what_is_public_is_not(ip: str) -> None:
    assert refusal(ip) == ""


def disguises(inner: IPv4Address) -> dict[str, IPv6Address]:
    number = int(inner)
    return {
        "mapped": IPv6Address((0xFFFF << 32) | number),
        "6to4": IPv6Address((0x2002 << 112) | (number << 80) | 1),
        "NAT64": IPv6Address((0x64FF9B << 96) | number),
        "Teredo": IPv6Address((0x20010000 << 96) | (0x08080808 << 64) | (~number & 0xFFFFFFFF)),
    }


@pytest.mark.parametrize("ip", INSIDE)
@pytest.mark.parametrize("disguise", ["mapped", "6to4", "NAT64", "Teredo"])
def test_disguises_do_not_help(ip: str, disguise: str) -> None:
    why = refusal(disguises(IPv4Address(ip))[disguise])
    assert disguise in why and ip in why


@given(st.ip_addresses(v=4))
def test_ipv4_is_judged_at_least_as_strictly_as_python_does(ip: IPv4Address) -> None:
    if refusal(ip) == "":
        assert ip.is_global and not (
            ip.is_multicast or ip.is_reserved or ip.is_loopback or ip.is_link_local
        )
    for name in ("mapped", "NAT64"):
        assert bool(refusal(disguises(ip)[name])) == bool(refusal(ip))


@given(st.ip_addresses(v=6))
def test_ipv6_is_judged_at_least_as_strictly_as_python_does(ip: IPv6Address) -> None:
    if refusal(ip) == "" and ip.ipv4_mapped is None:
        assert ip.is_global and not (
            ip.is_multicast or ip.is_loopback or ip.is_link_local or ip.is_site_local
        )


def test_a_laboratory_is_on_loopback_and_has_a_port() -> None:
    lab = Lab.parse(["127.0.0.1:8123", "[::1]:9000"])
    assert lab.holds("127.0.0.1", 8123) and lab.holds("::1", 9000)
    assert not lab.holds("127.0.0.1", 8124) and not lab.holds("127.0.0.2", 8123)
    for bad in (
        "10.0.0.1:80",
        "example.org:80",
        "localhost:80",
        "127.0.0.1",
        "127.0.0.1:0",
        "127.0.0.1:65536",
        "0.0.0.0:80",
    ):
        with pytest.raises(SettingsError, match="laboratory"):
            Lab.parse([bad])
    with pytest.raises(SettingsError, match="list"):
        Lab.parse("127.0.0.1:80")


def test_sockets_are_made_for_permitted_addresses_only() -> None:
    guard = Guard(Lab.parse(["127.0.0.1:8123"]))
    kind = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
    guard.open_socket((*kind, ("127.0.0.1", 8123))).close()
    guard.open_socket((*kind, ("93.184.216.34", 80))).close()
    for address in (("127.0.0.1", 22), ("10.0.0.1", 8123), ("::ffff:127.0.0.1", 8123, 0, 0)):
        with pytest.raises(ForbiddenAddressError, match="must not be dialled"):
            guard.open_socket((*kind, address))


class Changing(AbstractResolver):
    """A resolver with another answer at each lookup."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = self.answers.pop(0)
        return [
            ResolveResult(hostname=host, host=ip, port=port, family=family, proto=0, flags=0)
            for ip in found
        ]

    async def close(self) -> None:
        return


def test_each_lookup_is_checked() -> None:
    async def main() -> None:
        resolver = GuardedResolver(
            Changing(["93.184.216.34"], ["127.0.0.1"], ["93.184.216.34", "10.0.0.1"])
        )
        found = await resolver.resolve("site.example", 80)
        assert [entry["host"] for entry in found] == ["93.184.216.34"]
        with pytest.raises(ForbiddenAddressError, match=r"'site\.example' is 127\.0\.0\.1"):
            await resolver.resolve("site.example", 80)
        with pytest.raises(
            ForbiddenAddressError, match=r"10\.0\.0\.1"
        ):  # a public one beside it excuses nothing
            await resolver.resolve("site.example", 80)

    asyncio.run(main())


@pytest.mark.parametrize(
    "host", ["127.1", "2130706433", "0x7f.1", "0177.0.0.1", "127.0.0.1", "::1", "a b", "x..y", ""]
)
def test_numbers_are_no_names(host: str) -> None:
    async def main() -> None:
        with pytest.raises(ForbiddenAddressError, match="no host name"):
            await GuardedResolver(Changing(["93.184.216.34"])).resolve(host, 80)

    asyncio.run(main())
