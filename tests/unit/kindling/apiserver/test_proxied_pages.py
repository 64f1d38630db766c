"""Links of proxied servers lead through the proxy: in pages, however they arrive, and in redirects."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable

import pytest

from kindling.apiserver.proxying.rewriting import HtmlRewriter, ProxyPlace, recoder

PREFIX = "/api/v1/namespaces/n/pods/http:p:1080/proxy"
PLACE = ProxyPlace(PREFIX, "10.0.0.5:1080")


@pytest.mark.parametrize(
    ("address", "rewritten"),
    [
        ("/next", f"{PREFIX}/next"),
        ("/", f"{PREFIX}/"),
        ("/a/../b/?q=1#f", f"{PREFIX}/b/?q=1#f"),
        ("http://10.0.0.5:1080/next", f"{PREFIX}/next"),
        ("https://example.com/next", "https://example.com/next"),
        ("//example.com/next", "//example.com/next"),
        ("next", "next"),
        ("?q", "?q"),
        ("#part", "#part"),
        ("", ""),
        (f"{PREFIX}/next", f"{PREFIX}/next"),
        ("mailto:/x", "mailto:/x"),
        ("javascript:alert(1)", "javascript:alert(1)"),
        ("http://[broken/next", "http://[broken/next"),
    ],
)
def test_only_addresses_from_the_root_of_the_server_are_rewritten(address: str, rewritten: str) -> None:
    assert PLACE.rewrite(address) == rewritten


PAGES = [
    ('<a href="/x">t</a>', f'<a href="{PREFIX}/x">t</a>'),
    ("<A HREF=/x>t</A >", f'<A HREF="{PREFIX}/x">t</A >'),
    ("<img alt='a>b' src='/i.png'/>", f"<img alt='a>b' src=\"{PREFIX}/i.png\"/>"),
    ('<form action="/go?a=1&amp;b=2">', f'<form action="{PREFIX}/go?a=1&amp;b=2">'),
    ('<p href="/x"><a name="/x"><a href>', '<p href="/x"><a name="/x"><a href>'),
    ('<!-- <a href="/x"> --><a href="/y">', f'<!-- <a href="/x"> --><a href="{PREFIX}/y">'),
    (
        '<script src="/s.js">"<a href=/x>" < 1</script><link href="/c.css">',
        f'<script src="{PREFIX}/s.js">"<a href=/x>" < 1</script><link href="{PREFIX}/c.css">',
    ),
    ("a < b && c > d, 1<2", "a < b && c > d, 1<2"),
    ("<a title=it's =odd href=/x>", f'<a title=it\'s =odd href="{PREFIX}/x">'),
    ("no end: <a href='/x", "no end: <a href='/x"),
    ("no end: <!-- text", "no end: <!-- text"),
    ("no end: <style>a{}", "no end: <style>a{}"),
    ("<", "<"),
]


@pytest.mark.parametrize(("page", "rewritten"), PAGES)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 10_000])
def test_links_of_a_page_are_rewritten_in_whatever_pieces_it_comes(
    page: str, rewritten: str, size: int
) -> None:
    rewriter = HtmlRewriter(PLACE)
    data = page.encode()
    out = b"".join(rewriter.feed(data[at : at + size]) for at in range(0, len(data), size))
    assert (out + rewriter.finish()).decode() == rewritten


def test_bytes_that_are_no_text_pass() -> None:
    rewriter = HtmlRewriter(PLACE)
    data = b'\xff<a href="/\xff">\x00</a>'
    assert rewriter.feed(data) + rewriter.finish() == data


def test_a_tag_without_end_is_not_kept_forever() -> None:
    rewriter = HtmlRewriter(PLACE)
    pieces = [b'<a href="', *(b"x" * 10_000 for _ in range(20)), b'<a href="/x">']
    fed = [rewriter.feed(piece) for piece in pieces]
    assert b"".join(fed) == b"".join(pieces)
    assert fed[-1] == pieces[-1]


@pytest.mark.parametrize("encoding", ["gzip", "deflate", ""])
def test_compressed_pages_are_rewritten_and_compressed_again(encoding: str) -> None:
    page = b"<p>text</p>" * 50_000 + b'<a href="/x">'
    raw = zlib.compressobj(wbits=-15)
    body = {"gzip": gzip.compress(page), "deflate": raw.compress(page) + raw.flush(), "": page}[encoding]
    recode = recoder(PLACE, "text/html; charset=utf-8", encoding)
    assert recode is not None
    out = b"".join(recode.feed(body[:500]) + recode.feed(body[500:])) + recode.finish()
    inverses: dict[str, Callable[[bytes], bytes]] = {
        "gzip": gzip.decompress,
        "deflate": lambda data: zlib.decompress(data, -15),
        "": bytes,
    }
    assert inverses[encoding](out) == page.replace(b'"/x"', f'"{PREFIX}/x"'.encode())


@pytest.mark.parametrize(("kind", "encoding"), [("text/plain", ""), ("", ""), ("text/html", "br")])
def test_other_bodies_pass_as_they_are(kind: str, encoding: str) -> None:
    assert recoder(PLACE, kind, encoding) is None
