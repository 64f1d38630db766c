"""Objects in S3 and what speaks its protocol: path-style addresses, signed (version 4) where there are
keys.
"""

from __future__ import annotations

import hashlib
import hmac
import html
import http
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from urllib.parse import quote, unquote

import aiohttp
from yarl import URL

from virtplane.storage.cdi.importer.http import WebObject, address
from virtplane.storage.cdi.importer.settings import Settings

_REGION = re.compile(r"s3[.-]([a-z0-9-]+)\.amazonaws\.com")
_SAID = re.compile(rb"<(Code|Message)>([^<]{1,1024})</")
_STATUSES = frozenset(http.HTTPStatus)
_ALGORITHM = "AWS4-HMAC-SHA256"
_NOTHING = hashlib.sha256(b"").hexdigest()
"""The hash of the body of requests that have none."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Who signs, and for which region."""

    access: str
    secret: str = field(repr=False)
    region: str


def s3_object(settings: Settings) -> WebObject:
    """The object at the endpoint; requests for it are signed where the job has keys. Raises ImportFailed."""
    url = address(settings.endpoint, "s3")
    problem = f'could not get s3 object: "{unquote(url.raw_path).strip("/")}": '
    unsigned = WebObject(url, name="s3", headers=settings.headers, problem=problem, explain=refusal)
    if not (settings.access_key and settings.secret_key):
        return unsigned
    keys = Keys(settings.access_key, settings.secret_key, region_of(url.host or ""))
    path = quote(unquote(url.raw_path), safe="/-_.~")

    def sign(method: str, target: URL, headers: Mapping[str, str]) -> dict[str, str]:
        return signature(method, target, headers, keys, datetime.now(UTC))

    return replace(unsigned, url=URL(f"{url.origin()}{path}", encoded=True), sign=sign)


def region_of(host: str) -> str:
    """CDI's rule: the region in Amazon's host names, else the host's first label."""
    found = _REGION.search(host)
    return found[1] if found else host.split(".", maxsplit=1)[0]


def refusal(response: aiohttp.ClientResponse, body: bytes) -> str:
    """What a server says that does not give the object, as clients of Amazon's tell it."""
    said = {name.decode(): _plain(text) for name, text in _SAID.findall(body)}
    text = http.HTTPStatus(response.status).phrase if response.status in _STATUSES else ""
    code, message = said.get("Code", ""), said.get("Message", "")
    if not code:
        code, message = text.replace(" ", ""), text
    request, host = (response.headers.get(name, "") for name in ("x-amz-request-id", "x-amz-id-2"))
    return f"{code}: {message} status code: {response.status}, request id: {request}, host id: {host}"


def _plain(text: bytes) -> str:
    return html.unescape(text.decode(errors="replace"))


def signature(method: str, url: URL, headers: Mapping[str, str], keys: Keys, now: datetime) -> dict[str, str]:
    """The headers that sign a request without a body (Signature Version 4); `headers` has a range, if any.

    A signature is good for a quarter of an hour, so each request has its own.
    """
    day, moment = now.strftime("%Y%m%d"), now.strftime("%Y%m%dT%H%M%SZ")
    scope = f"{day}/{keys.region}/s3/aws4_request"
    signed = {"host": url.raw_authority, "x-amz-content-sha256": _NOTHING, "x-amz-date": moment}
    if "Range" in headers:
        signed["range"] = headers["Range"]
    lines = "".join(f"{name}:{signed[name]}\n" for name in sorted(signed))
    names = ";".join(sorted(signed))
    query = "&".join(
        sorted(f"{quote(name, safe='-_.~')}={quote(text, safe='-_.~')}" for name, text in url.query.items())
    )
    request = f"{method}\n{url.raw_path}\n{query}\n{lines}\n{names}\n{_NOTHING}"
    to_sign = f"{_ALGORITHM}\n{moment}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = f"AWS4{keys.secret}".encode()
    for part in (day, keys.region, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    value = hmac.new(key, to_sign.encode(), hashlib.sha256).hexdigest()
    credential = f"Credential={keys.access}/{scope}"
    return {
        "Authorization": f"{_ALGORITHM} {credential},SignedHeaders={names},Signature={value}",
        "x-amz-content-sha256": _NOTHING,
        "x-amz-date": moment,
    }
