"""Objects in Google's cloud storage: anonymous, or with a service account's key."""

from __future__ import annotations

import json
import time
from pathlib import Path

import aiohttp
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import RSAKey
from yarl import URL

from virtplane.storage.cdi.importer.http import Web, WebObject, address, reason
from virtplane.storage.cdi.importer.outcome import ImportFailed
from virtplane.storage.cdi.importer.settings import Settings

_STORAGE = "https://storage.googleapis.com"
_SCOPE = "https://www.googleapis.com/auth/devstorage.read_only"
_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_LIFETIME_SECONDS = 3600
_KEY_BYTES = 1 << 20


async def gcs_object(settings: Settings, web: Web) -> WebObject:
    """The object at the endpoint (``gs://bucket/object`` or an HTTP address). Raises ImportFailed."""
    url = address(settings.endpoint, "gcs")
    if url.scheme == "gs":
        url = URL(f"{_STORAGE}/{url.raw_host}{url.raw_path}", encoded=True)
    headers = tuple(settings.headers)
    if settings.paths.google.is_file():
        headers += (("Authorization", f"Bearer {await _token(settings.paths.google, web)}"),)
    return WebObject(url, name="gcs", headers=headers)


async def _token(path: Path, web: Web) -> str:
    """An access token for the service account whose key is in `path`. Raises ImportFailed."""
    try:
        with path.open("rb") as file:
            account = json.loads(file.read(_KEY_BYTES))
        address, email = str(account["token_uri"]), str(account["client_email"])
        now = int(time.time())
        claims = {"iss": email, "scope": _SCOPE, "aud": address, "iat": now, "exp": now + _LIFETIME_SECONDS}
        key = RSAKey.import_key(str(account["private_key"]))
        assertion = jwt.encode({"alg": "RS256"}, claims, key)
    except (OSError, ValueError, KeyError, TypeError, RecursionError, JoseError) as error:
        raise ImportFailed(
            f"Unable to connect to gcs data source: credentials.json is no key of a service account: {error}"
        ) from error
    try:
        answer = await web.post_form(URL(address), {"grant_type": _GRANT, "assertion": assertion})
        return str(answer["access_token"])
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise ImportFailed(f"Unable to connect to gcs data source: no token: {reason(error)}") from error
    except (KeyError, ValueError) as error:
        raise ImportFailed(f"Unable to connect to gcs data source: no token: {error}") from error
