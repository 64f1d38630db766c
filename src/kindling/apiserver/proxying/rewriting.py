"""Rewriting of links in proxied responses, so that they lead through the proxy.

A server behind ``…/proxy`` does not know that path. What it names by a path from the root (in redirects, and
in the attributes of HTML that hold addresses) gets the proxy's path before it. Links to other hosts and
relative ones stay as they are.
"""

from __future__ import annotations

import html
import posixpath
import re
import zlib
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

_MAX_TAG_BYTES = 64 * 1024
_INFLATED_BYTES = 256 * 1024
_TAG_NAME = re.compile(rb"<([A-Za-z][^\s/>]*+)")
_ATTRIBUTE = re.compile(
    rb"[\s/]*+([^\s/>][^\s/>=]*+)(?:\s*+=\s*+(\"[^\"]*+\"|'[^']*+'|[^\s>\"'][^\s>]*+))?", re.DOTALL
)
_EQUALS = re.compile(rb"\s*+=\s*+")
_TAG_END = re.compile(rb"[\s/]*+>")
_RAW_TEXT = frozenset(
    {b"script", b"style", b"textarea", b"title", b"iframe", b"noembed", b"noframes", b"xmp"}
)
_ADDRESSES: dict[bytes, frozenset[bytes]] = {
    element: frozenset(attributes.split())
    for element, attributes in {
        b"a": b"href",
        b"applet": b"codebase",
        b"area": b"href",
        b"audio": b"src",
        b"base": b"href",
        b"blockquote": b"cite",
        b"body": b"background",
        b"button": b"formaction",
        b"command": b"icon",
        b"del": b"cite",
        b"embed": b"src",
        b"form": b"action",
        b"frame": b"longdesc src",
        b"head": b"profile",
        b"html": b"manifest",
        b"iframe": b"longdesc src",
        b"img": b"longdesc src usemap",
        b"input": b"src usemap formaction",
        b"ins": b"cite",
        b"link": b"href",
        b"object": b"classid codebase data usemap",
        b"q": b"cite",
        b"script": b"src",
        b"source": b"src",
        b"video": b"poster src",
    }.items()
}


@dataclass(frozen=True, slots=True)
class ProxyPlace:
    """Where a proxied server appears.

    `prefix` is the path that ends with ``/proxy``, `authority` the server's own host and port.
    """

    prefix: str
    authority: str

    def rewrite(self, address: str) -> str:
        """The rewritten address for a client of the proxy. Invalid addresses are not changed."""
        try:
            scheme, authority, path, query, fragment = urlsplit(address.strip())
        except ValueError:
            return address
        if authority not in ("", self.authority) or not path.startswith("/") or path.startswith(self.prefix):
            return address
        if scheme not in ("", "http", "https"):
            return address
        joined = posixpath.normpath(f"{self.prefix}{path}")
        if path.endswith("/"):
            joined += "/"
        return urlunsplit(("", "", joined, query, fragment))


class HtmlRewriter:
    """Rewrites the links of an HTML page in chunks. All other bytes are passed on unchanged."""

    def __init__(self, place: ProxyPlace) -> None:
        self._place = place
        self._pending = b""
        self._until = b""
        """What ends the text in which tags are no tags."""
        self._given_up = False

    def feed(self, data: bytes) -> bytes:
        """The output that is certain after `data`."""
        if self._given_up:
            return data
        data = self._pending + data
        if self._pending.startswith(b"<") and b">" not in data and len(data) <= _MAX_TAG_BYTES:
            self._pending = data
            return b""
        out: list[bytes] = []
        position = 0
        while position < len(data):
            found = self._skip_text(data, position) if self._until else data.find(b"<", position)
            if found < 0:
                found = len(data)
            out.append(data[position:found])
            position = found
            step = self._markup(data, position, out)
            if step is None:
                break
            position = step
        self._pending = data[position:]
        if len(self._pending) > _MAX_TAG_BYTES:
            # A tag cannot be this large; the rest of the text is passed on unchanged.
            out.append(self.finish())
            self._given_up = True
        return b"".join(out)

    def finish(self) -> bytes:
        """The rest of the output at the end of the page."""
        left, self._pending = self._pending, b""
        return left

    def _skip_text(self, data: bytes, position: int) -> int:
        """Where the raw text ends; as much of it as may be passed on when its end has not come yet."""
        found = data.lower().find(self._until, position)
        if found >= 0:
            self._until = b""
            return found
        return max(position, len(data) - len(self._until) + 1)

    def _markup(self, data: bytes, position: int, out: list[bytes]) -> int | None:
        """Pass on the markup at `position`; where it ends, None when its end has not come yet."""
        if self._until or position >= len(data):
            return None
        if data.startswith(b"<!--", position):
            end = data.find(b"-->", position + 4)
            if end >= 0:
                out.append(data[position : end + 3])
                return end + 3
            self._until = b"-->"
            out.append(data[position : position + 4])
            return position + 4
        if len(data) - position < 4:
            return None
        name = _TAG_NAME.match(data, position)
        if name is None:
            out.append(data[position : position + 1])
            return position + 1
        return self._tag(data, name, out)

    def _tag(self, data: bytes, name: re.Match[bytes], out: list[bytes]) -> int | None:
        element = name.group(1).lower()
        wanted = _ADDRESSES.get(element, frozenset())
        position, copied = name.end(), name.start()
        parts: list[bytes] = []
        while not (end := _TAG_END.match(data, position)):
            attribute = _ATTRIBUTE.match(data, position)
            if attribute is None or attribute.end() == len(data):
                return None
            position = attribute.end()
            if attribute.group(2) is None and (equals := _EQUALS.match(data, position)):
                position = equals.end()
                if position == len(data) or data[position] in b"\"'":
                    return None
            if attribute.group(1).lower() in wanted and attribute.group(2) is not None:
                parts += (data[copied : attribute.start(2)], self._value(attribute.group(2)))
                copied = attribute.end(2)
        out += (*parts, data[copied : end.end()])
        if element in _RAW_TEXT:
            self._until = b"</" + element
        return end.end()

    def _value(self, raw: bytes) -> bytes:
        text = raw[1:-1] if raw[:1] in b"\"'" else raw
        try:
            before = html.unescape(text.decode())
        except UnicodeDecodeError:
            return raw
        after = self._place.rewrite(before)
        return raw if after == before else b'"' + html.escape(after).encode() + b'"'


class Recoder:
    """A body without its compression, and with it again. `encoding` is ``gzip``, ``deflate`` or empty."""

    def __init__(self, encoding: str, rewriter: HtmlRewriter) -> None:
        self._rewriter = rewriter
        bits = {"gzip": 16 + zlib.MAX_WBITS, "deflate": -zlib.MAX_WBITS}.get(encoding)
        self._inflate = None if bits is None else zlib.decompressobj(bits)
        self._deflate = None if bits is None else zlib.compressobj(wbits=bits)

    def feed(self, data: bytes) -> list[bytes]:
        """The pieces to pass on. Raises zlib.error."""
        if self._inflate is None or self._deflate is None:
            return [self._rewriter.feed(data)]
        pieces = []
        while data:
            plain = self._inflate.decompress(data, _INFLATED_BYTES)
            pieces.append(self._deflate.compress(self._rewriter.feed(plain)))
            data = self._inflate.unconsumed_tail
        return pieces

    def finish(self) -> bytes:
        """The end of the body."""
        left = self._rewriter.finish()
        return left if self._deflate is None else self._deflate.compress(left) + self._deflate.flush()


def recoder(place: ProxyPlace, content_type: str, encoding: str) -> Recoder | None:
    """What rewrites a body of this type; None for bodies that pass as they are."""
    if content_type.partition(";")[0].strip().lower() != "text/html":
        return None
    if encoding.strip().lower() not in ("", "identity", "gzip", "deflate"):
        return None
    return Recoder(encoding.strip().lower(), HtmlRewriter(place))
