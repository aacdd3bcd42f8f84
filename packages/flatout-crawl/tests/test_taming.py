"""Large markup is written anew in linear time, whatever it is made of. Where it were not, these
would take hours.
"""

import pytest

from flatout_crawl.net.fetching import Answer
from flatout_crawl.net.scope import canonical
from flatout_crawl.reading.parsing import DEFAULT_CAPS, read_page
from flatout_crawl.reading.taming import rewrite_markup

SIZE = DEFAULT_CAPS.bytes  # as much as is ever read of a page


@pytest.mark.parametrize(
    "unit",
    [
        b"a",
        b"a-",
        b"a ",
        b"a=",
        b'a"',
        b"a'",
        b"a\"'",
        b"/",
        b"<a",
        b"<a ",
        b'<a "',
        b"<a \"<b '",
        b"<!",
        b"<!--",
        b"<?",
        b'<a ="<b>',
        b"<script>",
        b"<title>",
        b"</a",
    ],
)
def test_tags_that_never_end_are_passed_over_once(unit: bytes) -> None:
    markup = b"<" + (unit * (SIZE // len(unit)))[:SIZE]
    assert rewrite_markup(markup, DEFAULT_CAPS.tags).startswith(b"<!doctype html>")


def test_quotations_are_looked_through_a_bounded_number_of_times() -> None:
    region = b"<a " + b'"' + b"<b '" + b"x" * 1_900 + b'" b '
    assert rewrite_markup((region * (SIZE // len(region)))[:SIZE], DEFAULT_CAPS.tags)


def test_a_tag_that_never_ends_is_text_and_the_links_before_it_are_kept() -> None:
    body = b'<a href="/x">x</a> <' + b"a" * 400_000
    page = read_page(Answer("http://a.lab/", 200, body, "text/html"), canonical)
    assert [link.url for link in page.links] == ["http://a.lab/x"]
    assert page.text.startswith("x <aaaa")
