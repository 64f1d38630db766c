"""Objects in S3 and what speaks its protocol: path-style addresses, signed (version 4) where there are
keys.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import quote, unquote

from yarl import URL

from virtplane.storage.cdi.importer.http import WebObject, address
from virtplane.storage.cdi.importer.settings import Settings

_REGION = re.compile(r"s3[.-]([a-z0-9-]+)\.amazonaws\.com")
_LIFETIME_SECONDS = 7 * 24 * 3600
"""The longest that a signature may live; an import signs once."""
_ALGORITHM = "AWS4-HMAC-SHA256"


@dataclass(frozen=True, slots=True)
class Keys:
    """Who signs, and for which region."""

    access: str
    secret: str = field(repr=False)
    region: str


def s3_object(settings: Settings, now: datetime | None = None) -> WebObject:
    """The object at the endpoint, with a signature in its address where the job has keys."""
    url = address(settings.endpoint, "s3")
    if settings.access_key and settings.secret_key:
        keys = Keys(settings.access_key, settings.secret_key, region_of(url.host or ""))
        url = presigned(url, keys, now or datetime.now(UTC))
    return WebObject(url, name="s3", headers=settings.headers)


def region_of(host: str) -> str:
    """CDI's rule: the region in Amazon's host names, else the host's first label."""
    found = _REGION.search(host)
    return found[1] if found else host.split(".", maxsplit=1)[0]


def presigned(url: URL, keys: Keys, now: datetime, seconds: int = _LIFETIME_SECONDS) -> URL:
    """`url` with a signature (Signature Version 4 in query parameters) that allows to GET it for
    `seconds`.
    """
    region = keys.region
    day, moment = now.strftime("%Y%m%d"), now.strftime("%Y%m%dT%H%M%SZ")
    scope = f"{day}/{region}/s3/aws4_request"
    path = quote(unquote(url.raw_path), safe="/-_.~")
    query = {
        "X-Amz-Algorithm": _ALGORITHM,
        "X-Amz-Credential": f"{keys.access}/{scope}",
        "X-Amz-Date": moment,
        "X-Amz-Expires": str(seconds),
        "X-Amz-SignedHeaders": "host",
    }
    canonical_query = "&".join(
        f"{quote(name, safe='-_.~')}={quote(query[name], safe='-_.~')}" for name in sorted(query)
    )
    host = url.raw_authority
    request = f"GET\n{path}\n{canonical_query}\nhost:{host}\n\nhost\nUNSIGNED-PAYLOAD"
    to_sign = f"{_ALGORITHM}\n{moment}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = f"AWS4{keys.secret}".encode()
    for part in (day, region, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, to_sign.encode(), hashlib.sha256).hexdigest()
    return URL(f"{url.scheme}://{host}{path}?{canonical_query}&X-Amz-Signature={signature}", encoded=True)
