"""Sites over real sockets on loopback: HTTP/1.1 with keep-alive, drawn waits, and faults on demand.

One event loop and no thread per request: answers are bytes made once, sent when their time has
come. As a program (`python -m flatout_crawl.sites.site_server --seed 1 --latency constant:0.05`) it
prints where it listens as one line of JSON and ends when its standard input is closed, so that it
never outlives whoever started it; `served` does both. `/-/counters` tells what was asked of it. It
is for tests and measurements, not for the open network.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from http import HTTPStatus
from pathlib import Path
from random import Random
from typing import NamedTuple

from flatout.children import own_program
from flatout.errors import RunError
from flatout_crawl.sites.documentation import Tree
from flatout_crawl.sites.latency import NO_LATENCY, Latency, parse_latency
from flatout_crawl.sites.site import SLOW, Answering, SiteSettings, generate

HOST = "127.0.0.1"
COUNTERS = "/-/counters"
LONGEST_HEAD = 32_768
MOST_KEPT = 20_000  # prepared answers
FAULTS = ("hang_share", "close_share", "error_share", "busy_share")


class Served(NamedTuple):
    """Where a server listens: one port per site, in the order given."""

    host: str
    port: int  # of the first site
    pid: int
    ports: tuple[int, ...]

    @property
    def origin(self) -> str:
        """The address of the first site."""
        return f"http://{self.host}:{self.port}"

    @property
    def origins(self) -> tuple[str, ...]:
        """The addresses of all sites."""
        return tuple(f"http://{self.host}:{port}" for port in self.ports)


class Serving:
    """One site's answers, its waits and its counters."""

    def __init__(self, site: Answering, latency: Latency = NO_LATENCY, seed: int = 0) -> None:
        self.site, self.latency = site, latency
        self.rng = Random(f"flatout server {seed}")
        self.counters = dict.fromkeys(
            ("requests", "errors", "hang", "close", "error", "busy", "connections", "open"), 0
        )
        self.kept: dict[tuple[str, bool], tuple[bytes, int, float]] = {}

    def prepare_answer(self, path: str, head_only: bool) -> tuple[bytes, int, float]:
        """The whole answer for a path, its status, and how much slower than usual it is."""
        made = self.kept.get((path, head_only))
        if made is None:
            status, headers, body = self.site.answer(path)
            made = message(status, headers, body, head_only), status, float(headers.get(SLOW, "0"))
            if len(self.kept) >= MOST_KEPT:  # a calendar without end was walked
                self.kept.clear()
            self.kept[path, head_only] = made
        return made


class Connection(asyncio.Protocol):
    """One client. Requests are answered in the order in which they came."""

    def __init__(self, serving: Serving) -> None:
        self.serving, self.buffer, self.busy = serving, b"", False
        self.timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport, self.loop = transport, asyncio.get_running_loop()
        self.serving.counters["connections"] += 1
        self.serving.counters["open"] += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self.serving.counters["open"] -= 1
        if self.timer is not None:
            self.timer.cancel()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if len(self.buffer) > LONGEST_HEAD:
            self.refuse(431)
        elif not self.busy:
            self.proceed()

    def proceed(self) -> None:
        """Take up the next request, if it is there as a whole."""
        head, found, rest = self.buffer.partition(b"\r\n\r\n")
        if not found:
            return
        self.buffer, self.busy = rest, True
        try:
            method, target, version = head.split(b"\r\n", 1)[0].decode("ascii").split(" ")
        except ValueError:  # UnicodeDecodeError is one too
            self.refuse(400)
            return
        if method not in ("GET", "HEAD"):
            self.refuse(405)
            return
        lasting = version == "HTTP/1.1" and b"connection: close" not in head.lower()
        self.respond(target, method == "HEAD", lasting)

    def respond(self, target: str, head_only: bool, lasting: bool) -> None:
        """Draw what happens to a request, and when."""
        serving = self.serving
        if target == COUNTERS:
            facts = json.dumps(serving.counters).encode()
            self.send(message(200, {"content-type": "application/json"}, facts, head_only), lasting)
            return
        counters = serving.counters
        counters["requests"] += 1
        draw = serving.latency.draw(serving.rng)
        # without it a crawler may ask for nothing at all
        fault = "" if target == "/robots.txt" else draw.fault
        if fault:
            counters[fault] += 1
        if fault == "hang":
            return
        if fault == "close":
            self.timer = self.loop.call_later(draw.seconds, self.transport.abort)
            return
        answer, status, more = serving.prepare_answer(target, head_only)
        if fault:
            status = 500 if fault == "error" else 503
            headers = {"retry-after": str(serving.latency.retry_after)} if fault == "busy" else {}
            answer, more = message(status, headers, b"", head_only), 0.0
        counters["errors"] += status >= 400
        wait = draw.seconds + more
        if wait > 0:
            self.timer = self.loop.call_later(wait, self.send, answer, lasting)
        else:
            self.send(answer, lasting)

    def send(self, answer: bytes, lasting: bool) -> None:
        """Send an answer; then take up the next request or close."""
        if self.transport.is_closing():
            return
        self.transport.write(answer)
        self.busy = False
        if not lasting:
            self.transport.close()
        elif self.buffer:
            self.loop.call_soon(self.take_up)

    def take_up(self) -> None:
        """The next request of a client that did not wait for the answer to the one before."""
        if not self.busy and not self.transport.is_closing():
            self.proceed()

    def refuse(self, status: int) -> None:
        """Answer what is not understood, and close."""
        self.serving.counters["errors"] += 1
        self.busy = True
        self.transport.write(message(status, {"connection": "close"}, b"", False))
        self.transport.close()


def message(status: int, headers: dict[str, str], body: bytes, head_only: bool) -> bytes:
    """An answer as it goes over the wire."""
    lines = [
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    head = "\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode("latin-1")
    return head if head_only else head + body


async def listen(serving: Serving, port: int = 0) -> asyncio.Server:
    """Serve a site in the running loop."""
    return await asyncio.get_running_loop().create_server(
        lambda: Connection(serving), HOST, port, backlog=1024
    )


def port_of(server: asyncio.Server) -> int:
    """The port a server listens on."""
    return int(server.sockets[0].getsockname()[1])


@contextmanager
def serve_sites(
    sites: SiteSettings | Path | Sequence[SiteSettings | Path],
    latency: Latency = NO_LATENCY,
    *,
    seed: int = 0,
    port: int = 0,
) -> Iterator[Served]:
    """Serve sites (or folders of HTML files) from a process of their own, until the block is
    left.
    """
    listed = [sites] if isinstance(sites, SiteSettings | Path) else list(sites)
    command = own_program(
        "flatout_crawl.sites.site_server", *arguments(listed, latency, seed, port)
    )
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    with process.stdin, process.stdout:
        try:
            line = process.stdout.readline()
            if not line:
                raise RunError(
                    f"the server of {listed} ended at once (exit code {process.wait()}): see "
                    f"its messages above"
                )
            facts = json.loads(line)
            yield Served(facts["host"], facts["port"], process.pid, tuple(facts["ports"]))
        finally:
            process.stdin.close()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def arguments(
    sites: Sequence[SiteSettings | Path], latency: Latency, seed: int, port: int
) -> list[str]:
    """The command line for these sites."""
    made = ["--latency", latency.spelled, "--latency-seed", str(seed), "--port", str(port)]
    made += ["--retry-after", str(latency.retry_after)]
    for share in FAULTS:
        made += [f"--{share.replace('_', '-')}", repr(getattr(latency, share))]
    for site in sites:
        made += (
            ["--folder", str(site)]
            if isinstance(site, Path)
            else ["--site", json.dumps(asdict(site))]
        )
    return made


def parser() -> argparse.ArgumentParser:
    """The parser of the server's command line."""
    made = argparse.ArgumentParser(
        prog="python -m flatout_crawl.sites.site_server", description="Serve sites on loopback."
    )
    made.add_argument(
        "--seed", type=int, action="append", default=[], help="a made-up site; may be repeated"
    )
    made.add_argument("--pages", type=int, default=600, help="of each of them")
    made.add_argument(
        "--site",
        action="append",
        default=[],
        metavar="JSON",
        help="a made-up site by all its settings",
    )
    made.add_argument(
        "--folder", type=Path, action="append", default=[], help="a folder of HTML files"
    )
    made.add_argument(
        "--latency", type=parse_latency, default=NO_LATENCY, help="for example constant:0.05"
    )
    made.add_argument("--latency-seed", type=int, default=0)
    for share in FAULTS:
        made.add_argument(f"--{share.replace('_', '-')}", type=float, default=0.0)
    made.add_argument("--retry-after", type=int, default=1)
    made.add_argument(
        "--port", type=int, default=0, help="of the first site; 0 = any, as for all others"
    )
    return made


async def serve(sites: Sequence[Answering], latency: Latency, seed: int, port: int) -> None:
    """Listen, say where, and go on until standard input is closed."""
    servings = [Serving(site, latency, seed + k) for k, site in enumerate(sites)]
    servers = [await listen(serving, 0 if k else port) for k, serving in enumerate(servings)]
    ports = [port_of(server) for server in servers]
    print(
        json.dumps({"host": HOST, "port": ports[0], "ports": ports, "pid": os.getpid()}), flush=True
    )
    closed = asyncio.Event()
    asyncio.get_running_loop().add_reader(
        sys.stdin.fileno(), look_for_end, sys.stdin.fileno(), closed
    )
    await closed.wait()
    for server in servers:
        server.close()


def look_for_end(file: int, closed: asyncio.Event) -> None:
    """Whether standard input was closed; what comes through it is not looked at."""
    if not os.read(file, 4096):
        closed.set()


def main() -> None:
    """Serve what the command line asks for."""
    given = parser().parse_args()
    latency = replace(
        given.latency,
        retry_after=given.retry_after,
        **{share: getattr(given, share) for share in FAULTS},
    )
    settings = [SiteSettings(seed=seed, pages=given.pages) for seed in given.seed]
    settings += [SiteSettings(**json.loads(text)) for text in given.site]
    sites: list[Answering] = [*map(generate, settings), *map(Tree, given.folder)]
    if not sites:
        parser().error("nothing to serve: give --seed, --site or --folder")
    asyncio.run(serve(sites, latency, given.latency_seed, given.port))


if __name__ == "__main__":
    main()
