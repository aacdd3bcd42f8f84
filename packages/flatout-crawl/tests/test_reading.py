"""Reading pages: what is found on them, and that nothing on them can do harm."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flatout_crawl.net.fetching import Answer
from flatout_crawl.net.scope import canonical
from flatout_crawl.reading.page import Link, Page
from flatout_crawl.reading.parsing import CONTROL, PageCaps, Reader, Resolver, read_page
from flatout_crawl.reading.taming import SMALL_BYTES, SMALL_TAGS, is_small, rewrite_markup

URL = "http://a.lab/docs/guide/page.html"


def read(markup: str | bytes, caps: PageCaps = PageCaps(), url: str = URL) -> Page:  # noqa: B008
    body = markup.encode() if isinstance(markup, str) else markup
    return read_page(Answer(url, 200, body, "text/html"), canonical, caps)


def links(markup: str | bytes, caps: PageCaps = PageCaps()) -> list[str]:  # noqa: B008
    return [link.url for link in read(markup, caps).links]


def only(markup: str) -> Link:
    (link,) = read(markup).links
    return link


def test_a_page_is_read_as_it_is_seen() -> None:
    page = read(
        "<html><head><title> The\n title </title><style>p{}</style></head><body><h1>One</h1>"
        "<p>two <b>three</b></p><script>var "
        "four</script><template>five</template><p>six&amp;seven</p></body></html>"
    )
    assert (page.url, page.title, page.text) == (URL, "The title", "One two three six&seven")


def test_links_are_absolute_each_once_in_order() -> None:
    found = links(
        '<a href="b.html">b</a><a href="/c#part">c</a><a href="?q=1">q</a><a href="//d.lab/x">d</a>'
        '<a href="b.html">again</a>'
        '<a href="#here">here</a><a href="page.html">itself</a><a href="mailto:a@b.c">m</a>'
        '<a href="javascript:x()">j</a>'
        '<a>none</a><map><area href="area.html" alt="an area"></map>'
    )
    folder = "http://a.lab/docs/guide/"
    assert found == [
        f"{folder}b.html",
        "http://a.lab/c",
        f"{URL}?q=1",
        "http://d.lab/x",
        f"{folder}area.html",
    ]


def test_positions_count_from_0() -> None:
    assert [
        link.position for link in read('<a href="b">b</a><a href="b">b</a><a href="c">c</a>').links
    ] == [0, 1]


def test_the_first_base_counts_and_is_relative_to_the_page() -> None:
    head = '<head><base href="../other/"><base href="http://evil.lab/"></head>'
    assert links(f'{head}<body><a href="x">x</a>') == ["http://a.lab/docs/other/x"]


@pytest.mark.parametrize("rel", ["nofollow", "noopener NOFOLLOW"])
def test_links_not_to_be_followed_are_left_out(rel: str) -> None:
    assert links(f'<a href="a" rel="{rel}">a</a><a href="b" rel="next">b</a>') == [
        "http://a.lab/docs/guide/b"
    ]


@pytest.mark.parametrize(
    ("content", "count"), [("nofollow", 0), ("noindex, NoFollow", 0), ("none", 0), ("noindex", 1)]
)
def test_a_page_may_ask_not_to_follow_any(content: str, count: int) -> None:
    page = read(
        f'<head><meta name="Robots" content="{content}"><title>T</title></head><a '
        f'href="x">x</a> '
        f"text"
    )
    assert (len(page.links), page.title, page.text) == (count, "T", "x text")


# --- what stands around a link --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("around", "zone"),
    [
        ("<nav>{}</nav>", "nav"),
        ("<header>{}</header>", "nav"),
        ("<aside><ul><li>{}</ul></aside>", "aside"),
        ("<footer>{}</footer>", "footer"),
        ("<main>{}</main>", "main"),
        ("<div>{}</div>", "main"),
        ("<div role=navigation>{}</div>", "nav"),
        ("<div role=contentinfo>{}</div>", "footer"),
        ("<div class='wide top-nav'>{}</div>", "nav"),
        ("<div id=sidebar>{}</div>", "aside"),
        ("<div class=site-footer>{}</div>", "footer"),
        ("<div class=breadcrumbs>{}</div>", "nav"),
        ("<div class=navigator-fish>{}</div>", "main"),
        ("<main><nav>{}</nav></main>", "nav"),
        ("<article><header>{}</header></article>", "main"),
        ("<aside><div class=content>{}</div></aside>", "main"),
    ],
)
def test_the_zone_is_that_of_the_nearest_ancestor_that_has_one(around: str, zone: str) -> None:
    assert only(around.format('<a href="x">x</a>')).zone == zone


def test_tag_paths_have_tags_and_first_classes() -> None:
    link = only(
        '<body class="dark wide"><div class="content big"><ul><li class="item"><a class="ref" '
        'href="x">x</a>'
    )
    assert link.tag_path == "body.dark/div.content/ul/li.item/a.ref"


def test_the_context_is_the_heading_above_and_the_words_beside() -> None:
    page = read(
        "<h2>First</h2><p>before <a href=a>one</a> after</p><h2>Second</h2>"
        "<ul><li><h3><a href=b>two</a></h3><p>described here</p></li></ul>"
    )
    first, second = page.links
    assert first.context == "First before after"
    assert second.anchor == "two"
    assert second.context == "two described here"  # the heading is the link itself


def test_an_anchor_without_text_is_named_by_its_attributes() -> None:
    assert only('<a href="x" title="The\tname"><img src="y"></a>').anchor == "The name"


# --- strangers ------------------------------------------------------------------------------------


def test_control_characters_and_turned_text_do_not_come_through() -> None:
    page = read(
        "<title>a\x1b[31mb</title><p>c\x07d \u202eevil\u2066 \x9b1m</p><a href='x' "
        "title='t'>e\x00\x08f</a>"
    )
    assert not CONTROL.search(page.title + page.text + page.links[0].anchor)
    assert page.text.startswith("cd evil 1m")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("<p>naïve</p>".encode(), "naïve"),
        ('<meta charset="iso-8859-1"><p>naïve “x”</p>'.encode("cp1252"), "naïve “x”"),
        (
            (
                '<meta http-equiv="content-type" content="text/html; charset=koi8-r"><p>Привет</p>'
            ).encode("koi8-r"),
            "Привет",
        ),
        ("<p>naïve</p>".encode("utf-16"), "naïve"),
        (b"<p>na\xefve</p>", "na\ufffdve"),
        (b'<meta charset="utf-7"><p>+ADw-b+AD4-</p>', "+ADw-b+AD4-"),
        (b'<meta charset="base64"><p>plain</p>', "plain"),
        (b'<meta charset="no-such"><p>plain</p>', "plain"),
    ],
)
def test_encodings_are_those_of_browsers_and_bad_ones_survive(body: bytes, text: str) -> None:
    assert read(body).text == text


def test_caps_hold() -> None:
    caps = PageCaps(text=50, links=3, depth=4, title=10, anchor=8, around=5, href=40)
    inside = "".join(f'<a href="p{k}">{"word " * 10}</a>' for k in range(9))
    page = read(
        f'<title>{"t" * 99}</title><a href="{"h" * 41}">h</a>{"<div>" * 20}{inside}{"x" * 500}',
        caps,
    )
    assert (len(page.title), len(page.text), len(page.links)) == (10, 50, 3)
    assert all(len(link.anchor) <= 8 and link.tag_path == "body/div/div/div" for link in page.links)


@pytest.mark.parametrize(
    "markup",
    [
        b"<div>" * 100_000,
        b"<b>" * 100_000,
        b"<p " + b" ".join(b"a%d" % k for k in range(100_000)) + b">",
        b'<p x=">" ' + b" ".join(b"a%d" % k for k in range(100_000)) + b">",
        b"<!--" * 100_000,
        b"<script>" * 50_000,
        b"<script>" + b"</script " * 50_000,
        b"<a '\"" * 50_000,
        b"<div><!--</div>-->" * 30_000,
        b"".join(b"<b id=%d><div>" % k for k in range(9_000)) + b"</b>" * 20_000,
        b"<table><td>" * 20_000,
        b"<svg><script><div>" * 20_000,
        b'<a href="x' * 50_000,
    ],
    ids=lambda markup: markup[:20].decode(),
)
def test_markup_made_to_tie_up_the_parser_does_not(markup: bytes) -> None:
    page = read(
        b'<title>T</title><a href="first">first</a>' + markup
    )  # unguarded, some of these take minutes
    assert page.title == "T"
    assert page.links[0].url.endswith("/first")


def test_a_large_page_is_read_like_a_small_one() -> None:
    start = (
        '<!doctype html><html><head><meta charset="utf-8"><title>A &amp; B</title><base '
        'href="/base/"></head>'
        "<body class=dark><nav><ul><li><a href='n1' class=x>n 1</a><li><a "
        "href=n2>n2</a></ul></nav><main id=m>"
        "<h2>Head <b>line</b></h2><div class='c d'><p>before <i>it</i> "
        "<a title='a > b' href=\"m1?a=1&amp;b=2\">m1</a> after</p></div>"
        "<!-- <a href=hidden>h</a> --><script>'<a href=script>s</a>'</script>"
        "<table><tr><td><a href=t1>t1</a></table></main>"
        "<footer><a rel=nofollow href=f1>f1</a><a href=f2>f2</a></footer>"
    )
    filler = "<p>filler <em>text</em></p>" * (SMALL_TAGS // 4 + 1)
    assert is_small(start.encode()) and not is_small((start + filler).encode())
    small, large = read(start), read(start + filler)
    assert large.links == small.links
    assert large.title == small.title == "A & B"
    assert large.text.startswith(small.text) and large.text.endswith("filler text")
    assert read(rewrite_markup(start.encode(), 1_000)) == small


def test_what_is_large_is_cut_at_the_number_of_tags() -> None:
    markup = "".join(f'<p><a href="p{k}">{k}</a></p>' for k in range(SMALL_BYTES // 20))
    assert len(links(markup, PageCaps(tags=400))) == 100


@given(st.binary(max_size=400))
@settings(max_examples=150, deadline=None)
def test_any_bytes_can_be_read(body: bytes) -> None:
    check(read(body))
    check(read(rewrite_markup(body, 100)))


PIECES = st.sampled_from(
    [
        "<a href='x'>",
        "</a>",
        "<a href=",
        "'",
        '"',
        ">",
        "<",
        "<div class=nav>",
        "</div>",
        "<p>",
        "<table>",
        "<td>",
        "</table>",
        "<b>",
        "</b>",
        "<script>",
        "</script>",
        "<!--",
        "-->",
        "<svg>",
        "</svg>",
        "<base href='//[::1'>",
        "<base href='http://b.lab/c/'>",
        "<title>",
        "</title>",
        "<h2>",
        "</h2>",
        "<li>",
        "&amp;",
        "&#0;",
        "&#x202e;",
        "<template>",
        "<select>",
        "<option>",
        "<plaintext>",
        "<frameset>",
        "<meta name=robots content=nofollow>",
        "\x00",
        "é",
        "word ",
        "<a href='http://c.lab:x'>",
    ]
)


@given(st.lists(PIECES, max_size=60).map("".join))
@settings(max_examples=200, deadline=None)
def test_any_markup_can_be_read(markup: str) -> None:
    check(read(markup))
    check(read(rewrite_markup(markup.encode(), 1_000)))


def check(page: Page) -> None:
    """What holds for every page."""
    urls = [link.url for link in page.links]
    assert len(set(urls)) == len(urls) and page.url not in urls
    assert [link.position for link in page.links] == list(range(len(urls)))
    assert all(canonical(url) == url for url in urls)
    texts = [
        page.title,
        page.text,
        *(text for link in page.links for text in (link.anchor, link.context, link.tag_path)),
    ]
    for text in texts:
        assert not CONTROL.search(text)
        assert text == " ".join(text.split())


# --- remembering ----------------------------------------------------------------------------------


def test_the_digest_is_of_title_and_text() -> None:
    first = read("<title>T</title><p>text <a href=x>x</a></p>")
    assert (
        read("<title>T</title><div>text <a href=y>x</a></div>", url="http://b.lab/").digest
        == first.digest
    )
    assert read("<title>U</title><p>text <a href=x>x</a></p>").digest != first.digest


def test_a_reader_reads_once_and_forgets_the_oldest() -> None:
    reader = Reader(canonical, pages=2)
    answers = [Answer(f"http://a.lab/{k}", 200, b"<p>%d <a href=x>x</a>" % k) for k in range(3)]
    first = reader.read(answers[0])
    assert reader.read(answers[0]) is first
    assert (reader.hits, reader.misses) == (1, 1)
    changed = reader.read(answers[0]._replace(body=b"<p>new"))
    assert changed.text == "new"
    for answer in answers[1:]:
        reader.read(answer)
    assert len(reader.known) == 2
    assert reader.read(answers[0]) == first
    assert reader.hits == 1  # it had been forgotten


HREFS = [
    "/x",
    "x",
    "../x",
    "./x",
    "?q",
    "",
    "//h.lab/x",
    "http://h.lab/x",
    "HTTP://h.lab/x",
    "http:x",
    "x:y",
    "é",
    "\\x",
    "x?y=/z/",
]
BASES = [
    "http://a.lab",
    "http://a.lab/",
    "http://a.lab/b/c",
    "http://a.lab/b/d?e=/f/g",
    "http://a.lab/b/",
    "https://a.lab/b/c",
]


def test_remembered_resolutions_are_the_right_ones() -> None:
    asked: list[str] = []

    def counted(href: str, base: str) -> str | None:
        asked.append(href)
        return canonical(href, base)

    resolver = Resolver(counted)
    for _ in range(2):
        for base in BASES:
            assert [resolver(href, base) for href in HREFS] == [
                canonical(href, base) for href in HREFS
            ]
    assert asked.count("http://h.lab/x") == 1
    assert asked.count("/x") == 2  # two origins
    assert len(asked) < len(HREFS) * len(BASES)


def test_a_resolver_stays_small() -> None:
    resolver = Resolver(canonical, most=10)
    for k in range(35):
        resolver(f"/p{k}", "http://a.lab/")
    assert len(resolver.known) <= 10
