"""Pages fetched over plain HTTP, with no proxy between."""

from __future__ import annotations

import urllib.request
from urllib.error import HTTPError


class PageRefused(OSError):
    """A web server answered with an error."""


def fetch_page(url: str, seconds: float = 3) -> bytes:
    """The body behind a URL. Raises OSError, of which PageRefused is one.

    An HTTPError holds its connection open for as long as anyone holds the error; so it does not leave here.
    """
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=seconds) as answer:
            return bytes(answer.read())
    except HTTPError as error:
        error.close()
        raise PageRefused(f"{url}: {error.code} {error.reason}") from None
