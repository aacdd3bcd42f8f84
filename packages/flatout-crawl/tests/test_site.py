"""Made-up sites: equal from equal seeds, the truth about them is what a reader finds, and they are
hard as meant.
"""

import hashlib
import subprocess
import sys
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flatout.errors import SettingsError
from flatout_crawl.net.fetching import Answer
from flatout_crawl.net.scope import canonical
from flatout_crawl.reading.page import Page
from flatout_crawl.reading.parsing import Reader
from flatout_crawl.sites.site import SLOW, Site, SiteSettings, generate, oracle_order, way, ways

SEEDS = range(6)
SITES = {seed: generate(SiteSettings(seed=seed, pages=150 + 60 * seed)) for seed in SEEDS}
READER = Reader(canonical)


def page_of(site: Site, url: str) -> Page:
    status, headers, body = site.answer(url)
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    return READER.read(Answer(url, status, body, "text/html"))


def digest(site: Site) -> str:
    made = hashlib.blake2b()
    for path in (
        *site.plan.plans,
        *site.plan.redirects,
        *site.plan.copies,
        *site.plan.errors,
        "/robots.txt",
    ):
        status, headers, body = site.answer(path)
        made.update(f"{path} {status} {sorted(headers.items())}".encode() + body)
    return made.hexdigest()


# --- determinism ----------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_bytes_in_another_process() -> None:
    program = (
        "from flatout_crawl.sites.site import *; from hashlib import blake2b\n"
        "site, made = generate(SiteSettings(seed=3, pages=120)), blake2b()\n"
        "for path in site.plan.plans: made.update(path.encode() + site.answer(path).body)\n"
        "print(made.hexdigest())"
    )
    ran = [
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=env
        ).stdout
        for env in ({"PYTHONHASHSEED": "1"}, {"PYTHONHASHSEED": "2"})
    ]
    site, made = generate(SiteSettings(seed=3, pages=120)), hashlib.blake2b()
    for path in site.plan.plans:
        made.update(path.encode() + site.answer(path).body)
    assert ran == [f"{made.hexdigest()}\n"] * 2


def test_pages_do_not_depend_on_the_order_in_which_they_are_asked_for() -> None:
    site = generate(SITES[1].settings)
    for path in reversed(site.plan.plans):
        site.answer(path)
    assert digest(site) == digest(generate(SITES[1].settings))


def test_other_seeds_are_other_sites() -> None:
    assert len({digest(site) for site in SITES.values()}) == len(SITES)
    assert len({site.topic for site in SITES.values()}) == len(SITES)
    assert len({str(site.plan.style) for site in SITES.values()}) == len(SITES)


def test_a_site_may_move_to_another_host() -> None:
    site = SITES[2]
    moved = site.at("http://127.0.0.1:8123")
    assert moved.seed_url == "http://127.0.0.1:8123/"
    assert digest(moved) == digest(site)
    assert {url.removeprefix(moved.origin) for url in moved.targets} == set(site.plan.targets)


# --- the truth ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_the_graph_is_what_a_reader_finds(seed: int) -> None:
    site = SITES[seed]
    for url, links in site.graph.items():
        assert tuple(link.url for link in page_of(site, url).links) == links


@pytest.mark.parametrize("seed", SEEDS)
def test_every_target_can_be_reached_by_links_that_may_be_followed(seed: int) -> None:
    site = SITES[seed]
    reached = ways(site.graph, [site.seed_url])
    assert site.targets <= reached.keys()
    assert not any(site.forbids(url) for url in reached)
    assert set(site.graph) == set(reached)


@pytest.mark.parametrize("seed", SEEDS)
def test_targets_are_full_of_keywords_and_other_pages_are_not(seed: int) -> None:
    site = SITES[seed]
    keywords = set(site.topic)

    def share(url: str) -> float:
        words = page_of(site, url).text.lower().replace(".", "").split()
        return sum(word in keywords for word in words) / len(words)

    least = min(share(url) for url in site.targets)
    most = max(share(url) for url in site.graph if url not in site.targets)
    assert least > 0.03
    others = [url for url in site.graph if url not in site.targets]
    assert sum(share(url) > least for url in others) < 0.05 * len(others), (least, most)


@pytest.mark.parametrize("seed", SEEDS)
def test_numbers_are_about_as_asked(seed: int) -> None:
    site = SITES[seed]
    asked = site.settings.pages
    assert asked * 0.85 < len(site.graph) < asked * 1.15
    assert 0.05 < len(site.targets) / len(site.graph) < 0.1


@pytest.mark.parametrize("seed", SEEDS)
def test_what_stands_behind_a_gateway_is_reached_through_it_only(seed: int) -> None:
    site = SITES[seed]
    assert len(site.gateways) >= 2
    assert sum(map(len, site.gateways.values())) >= len(site.targets) / 2
    for gateway, behind in site.gateways.items():
        closed = {url: links for url, links in site.graph.items() if url != gateway}
        assert not set(behind) & ways(closed, [site.seed_url]).keys()
        # home, hub, guide, gateway: to be planned
        assert len(way(ways(site.graph, [site.seed_url]), behind[0])) >= 4


@pytest.mark.parametrize("seed", SEEDS)
def test_decoys_promise_what_they_do_not_keep(seed: int) -> None:
    site = SITES[seed]
    assert site.decoys and not site.decoys & site.targets
    anchors = {link.url: link.anchor for url in site.graph for link in page_of(site, url).links}
    promising = [url for url in site.decoys if set(anchors[url].lower().split()) & set(site.topic)]
    assert len(promising) == len(site.decoys)
    silent = [
        url for url in site.targets if not set(anchors[url].lower().split()) & set(site.topic)
    ]
    assert len(silent) > len(site.targets) / 3


@pytest.mark.parametrize("seed", SEEDS)
def test_lists_behind_gateways_share_a_tag_path_and_stand_in_the_main_part(seed: int) -> None:
    site = SITES[seed]
    places = {}
    for gateway, behind in site.gateways.items():
        links = [link for link in page_of(site, gateway).links if link.url in behind]
        places[gateway] = {(link.tag_path, link.zone) for link in links}
    ((path, zone),) = set.union(*places.values())
    assert zone == "main"
    navigation = [
        link for link in page_of(site, site.seed_url).links if link.zone in ("nav", "footer")
    ]
    assert len(navigation) > 5 and path not in {link.tag_path for link in navigation}


def test_tag_paths_differ_between_sites() -> None:
    paths = set()
    for site in SITES.values():
        gateway, behind = next(iter(site.gateways.items()))
        paths |= {link.tag_path for link in page_of(site, gateway).links if link.url in behind}
    assert len(paths) >= 4


# --- hazards --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_copies_are_the_same_page_under_another_url(seed: int) -> None:
    site = SITES[seed]
    linked = {link for links in site.graph.values() for link in links}
    assert site.copies and set(site.copies) <= linked
    for copy, url in site.copies.items():
        assert page_of(site, copy).digest == page_of(site, url).digest
        assert site.resolve(copy) == url


def test_pages_that_are_not_copies_differ() -> None:
    site = SITES[4]
    assert len({page_of(site, url).digest for url in site.graph}) == len(site.graph)


@pytest.mark.parametrize("seed", SEEDS)
def test_redirects_lead_somewhere_in_chains_out_and_in_circles(seed: int) -> None:
    site = SITES[seed]
    for url, to in site.redirects.items():
        status, headers, _ = site.answer(url)
        assert (status, canonical(headers["location"], url)) == (301, to)
    ends = [site.resolve(url) for url in site.redirects]
    assert any(site.redirects.get(to, to) != to for to in site.redirects.values())  # a chain
    assert any(not end.startswith(site.origin) for end in ends)
    assert any(end in site.redirects for end in ends)  # a circle
    assert any(end in site.graph for end in ends)


@pytest.mark.parametrize("seed", SEEDS)
def test_errors_slow_pages_and_forbidden_folders_are_linked(seed: int) -> None:
    site = SITES[seed]
    linked = {link for links in site.graph.values() for link in links}
    assert {status for url, status in site.errors.items() if url in linked} >= {404, 500}
    assert all(site.answer(url).status == status for url, status in site.errors.items())
    assert any(SLOW in site.answer(path).headers for path in site.plan.plans)
    assert site.forbidden <= linked and all(site.forbids(url) for url in site.forbidden)
    assert b"Disallow: /private/" in site.answer("/robots.txt").body
    assert f"{site.origin}/login" not in linked  # nofollow


def test_the_calendar_has_no_end_but_the_truth_has() -> None:
    site = SITES[0]
    url, seen = f"{site.origin}/calendar/2025/03/", set()
    assert url in site.graph
    for _ in range(150):
        assert url not in seen
        seen.add(url)
        url = (
            page_of(site, url)
            .links[[link.anchor for link in page_of(site, url).links].index("Later")]
            .url
        )
    assert len(seen & site.graph.keys()) == 1
    assert site.answer("/calendar/99999/12/").status == 200
    assert site.answer("/calendar/2025/13/").status == 404


def test_a_site_without_hazards_has_none() -> None:
    site = generate(SiteSettings(seed=1, pages=150, hazards=False))
    assert not (site.copies or site.redirects or site.errors or site.forbidden)
    assert site.answer("/calendar/2025/03/").status == 404
    inside = {
        link for links in site.graph.values() for link in links if link.startswith(site.origin)
    }
    assert inside == set(site.graph)


def test_a_sitemap_where_asked_for() -> None:
    site = generate(SiteSettings(seed=1, pages=150, sitemap=True))
    listed = site.answer("/sitemap.xml").body.decode().replace("&amp;", "&")
    assert 20 < sum(f"<loc>{url}</loc>" in listed for url in site.graph) < 100
    assert not any(
        f"<loc>{url}</loc>" in listed for behind in site.gateways.values() for url in behind
    )
    assert b"Sitemap: http://site1.lab/sitemap.xml" in site.answer("/robots.txt").body
    assert SITES[1].answer("/sitemap.xml").status == 404


@given(st.text(max_size=40))
@settings(max_examples=60, deadline=None)
def test_any_path_has_an_answer(path: str) -> None:
    for asked in (path, f"/{path}", f"{SITES[0].origin}/{path}"):
        assert SITES[0].answer(asked).status in (200, 301, 404)


# --- difficulty -----------------------------------------------------------------------------------


def requests_to_find(site: Site, order: list[str], share: float) -> int:
    """How many requests of an order find this share of the targets."""
    wanted, found = round(share * len(site.targets)), 0
    for count, url in enumerate(order, 1):
        found += url in site.targets
        if found == wanted:
            return count
    raise AssertionError("not found")


def breadth_first(site: Site) -> list[str]:
    """Pages of the truth only: no request is lost on hazards."""
    order, queue = [site.seed_url], deque([site.seed_url])
    seen = {site.seed_url}
    while queue:
        for url in site.graph[queue.popleft()]:
            if url in site.graph and url not in seen:
                seen.add(url)
                order.append(url)
                queue.append(url)
    return order


@pytest.mark.parametrize("seed", SEEDS)
def test_the_oracle_needs_few_requests_and_breadth_first_many(seed: int) -> None:
    site = SITES[seed]
    best, broad = oracle_order(site), breadth_first(site)
    assert best[0] == site.seed_url and len(set(best)) == len(best)
    known = {site.seed_url}
    for url in best:
        assert url in known  # only what was seen before is asked for
        known |= set(site.graph[url])
    assert site.targets <= set(best)
    assert len(best) < 2.2 * len(site.targets)
    for share in (0.5, 0.9):
        assert requests_to_find(site, broad, share) > 5 * requests_to_find(site, best, share)


@pytest.mark.parametrize(
    "given",
    [
        {"pages": 50},
        {"pages": 10**6},
        {"target_share": 0.5},
        {"origin": "127.0.0.1"},
        {"origin": "http://a/b"},
    ],
)
def test_bad_settings_are_refused(given: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match=next(iter(given))):
        SiteSettings(**{"seed": 1, **given})  # type: ignore[arg-type]
