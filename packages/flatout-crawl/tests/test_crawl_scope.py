"""One spelling per URL, and an allow-list that tricks do not widen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatout.errors import SettingsError
from flatout_crawl.net.scope import LONGEST_URL, Origin, Scope, canonical, origin_of, spell_url

CANONICAL = {
    "HTTP://Docs.Example.ORG:80/a/../b/./c#part": "http://docs.example.org/b/c",
    "https://example.org:443": "https://example.org/",
    "https://example.org:80/": "https://example.org:80/",
    "http://example.org./x": "http://example.org/x",
    "http://example.org/%7Euser/%2e%2e/x": "http://example.org/x",
    "http://bücher.example/ü?q=ü": "http://xn--bcher-kva.example/%C3%BC?q=%C3%BC",
    "  http://example.org/a b ": "http://example.org/a%20b",
    "http://example.org?": "http://example.org/",
    "http://[2606:4700:0::1]:8080/": "http://[2606:4700::1]:8080/",
    "http://example.org/%zz": "http://example.org/%25zz",
}
NOT_CRAWLABLE = [
    "",
    "ftp://example.org/",
    "javascript:alert(1)",
    "mailto:a@example.org",
    "data:text/html,x",
    "file:///etc/passwd",
    "/only/a/path",
    "http:///x",
    "http://user@example.org/",
    "http://user:word@example.org/",
    "http://example.org:0/",
    "http://example.org:99999/",
    "http://exam ple.org/",
    "http://exa%6dple.org/",
    "http://example..org/",
    "http://example.org../",
    "http://[fe80::1%25eth0]/",
    "http://[::1",
    "http://[::1]@",
    "http://example.org\\@evil.example/",
    "http://example.org/a\\..\\b",
    "http://example.org/a%5c..%5cb",
    "http://example.org/a\nb",
    "http://example.org/\x00",
    "http://example.org/a%00b",
    "http://example.org/docs/..%2fprivate",
    "http://example.org/docs/%252e%252e/private",
    "http://example.org/docs/..;/private",
    "http://127.1/",
    "http://2130706433/",
    "http://0x7f.1/",
    "http://0x7f000001/",
    "http://0177.0.0.1/",
    "http://127.0.0.01/",
    "http://1.2.3.4.5/",
    "http://256.1.1.1/",
    "http://example.org/" + "x" * LONGEST_URL,
    "http://example.org/" + "ü" * (LONGEST_URL // 3),  # too long once it is encoded
]


@pytest.mark.parametrize(("given_url", "wanted"), CANONICAL.items())
def test_one_spelling(given_url: str, wanted: str) -> None:
    assert canonical(given_url) == wanted


@pytest.mark.parametrize("url", NOT_CRAWLABLE)
def test_what_cannot_be_crawled_has_no_spelling(url: str) -> None:
    assert canonical(url) is None
    assert not Scope.parse(["example.org", "*.evil.example", "127.0.0.1"]).allows(url)


def test_links_are_resolved_against_their_page() -> None:
    page = "http://example.org/a/b?c=d"
    assert canonical("../x#y", page) == "http://example.org/x"
    assert canonical("//other.example/x", page) == "http://other.example/x"
    assert canonical("?e", page) == "http://example.org/a/b?e"
    assert canonical("", page) == page
    assert canonical("javascript:void(0)", page) is None


pieces = st.sampled_from(
    [
        "http://",
        "https://",
        "example.org",
        "EXAMPLE.org",
        ".",
        "..",
        "/",
        "//",
        "%2e",
        "%2F",
        "%",
        "?",
        "#",
        ":",
        "80",
        "@",
        "ü",
        "①",
        "\\",
        " ",
        "\t",
        "a",
        "=",
        "&",
        "+",
        ";",
        "[::1]",
        "127.0.0.1",
        "0x7f",
        "。",
        "\ud800",
        "%ff",
        "'",
        '"',
        "|",
    ]
)


@given(
    st.lists(pieces, max_size=12).map("".join), st.sampled_from([None, "http://example.org/a/b"])
)
def test_a_spelling_is_final_and_plain(text: str, base: str | None) -> None:
    made = canonical(text, base)
    if made is not None:
        assert canonical(made) == made
        assert (
            made.isascii()
            and made.isprintable()
            and " " not in made
            and "\\" not in made
            and "#" not in made
        )
        assert len(made) <= LONGEST_URL
        origin = origin_of(made)
        assert (
            origin.scheme in ("http", "https")
            and origin.host == origin.host.lower()
            and 0 < origin.port < 65536
        )
        assert not {".", ".."} & set(made.split("?")[0].split("/"))


@given(st.text(max_size=60))
def test_any_text_is_survived(text: str) -> None:
    canonical(text, "http://example.org/")
    canonical("http://" + text)


def test_hosts_are_exact() -> None:
    scope = Scope.parse(["docs.example.org"])
    assert scope.allows("http://docs.example.org/") and scope.allows("https://DOCS.example.org./x")
    for host in (
        "example.org",
        "x.docs.example.org",
        "docs.example.org.evil.example",
        "xdocs.example.org",
    ):
        assert not scope.allows(f"http://{host}/")


def test_domains_hold_the_hosts_below_them() -> None:
    scope = Scope.parse(["*.example.org"])
    assert scope.allows("http://example.org/") and scope.allows("http://a.b.example.org/")
    assert not scope.allows("http://badexample.org/") and not scope.allows(
        "http://example.org.evil.example/"
    )


def test_prefixes_end_at_a_segment() -> None:
    scope = Scope.parse(["example.org/docs"])
    for path in ("/docs", "/docs/", "/docs/a/b?c", "/x/../docs/a"):
        assert scope.allows(f"http://example.org{path}"), path
    for path in (
        "/",
        "/docs-private",
        "/docs.html",
        "/Docs/",
        "/docs/../private",
        "/docs%2Fx",
        "//docs/",
        "/docs/%2e%2e/x",
    ):
        assert not scope.allows(f"http://example.org{path}"), path
    assert scope.allows_host("http://example.org/robots.txt") and not scope.allows_host(
        "http://other.example/"
    )
    assert Scope.parse(["example.org/docs/"]) == scope


def test_ports_are_the_webs_or_the_named_one() -> None:
    assert not Scope.parse(["example.org"]).allows("http://example.org:8080/")
    scope = Scope.parse(["127.0.0.1:8080", "[::1]:9000", "bücher.example"])
    assert scope.allows("http://127.0.0.1:8080/") and not scope.allows("http://127.0.0.1/")
    assert scope.allows("http://[0:0::1]:9000/") and scope.allows("http://xn--bcher-kva.example/")


@pytest.mark.parametrize(
    "entry",
    [
        "",
        "*",
        "*.",
        "*.org",
        "*.co.uk",
        "*.127.0.0.1",
        "http://example.org",
        "example.org?x",
        "example.org/#x",
        "a b.org",
        "user@example.org",
        "example.org:0",
        "example.org:123456",
        "exam*ple.org",
        "127.1",
        "example.org/../%2e%2e%2fx",
    ],
)
def test_entries_that_are_not_understood_are_refused(entry: str) -> None:
    with pytest.raises(SettingsError, match="allow-list"):
        Scope.parse([entry])


def test_an_empty_allow_list_is_an_error() -> None:
    with pytest.raises(SettingsError, match="empty"):
        Scope.parse([])
    with pytest.raises(SettingsError, match="empty"):
        Scope(())
    with pytest.raises(SettingsError, match="list of entries"):
        Scope.parse("example.org")


def test_origins_know_their_root() -> None:
    assert Origin("http", "::1", 8080).url == "http://[::1]:8080/"
    assert origin_of("https://example.org/x").url == "https://example.org/"


@pytest.mark.parametrize("folder", ["x%2Fy", "a%3Fb", "%2520", "a%20b", "%C3%A9"])
def test_a_relative_link_keeps_the_spelling_of_its_page(folder: str) -> None:
    assert canonical("w", f"http://a.lab/{folder}/z") == f"http://a.lab/{folder}/w"


def test_a_long_url_is_refused_without_being_remembered() -> None:
    spell_url.cache_clear()
    assert canonical("http://a.lab/" + "x" * 1_000_000) is None
    assert canonical("http://a.lab/x") == "http://a.lab/x"
    assert spell_url.cache_info().currsize == 1
