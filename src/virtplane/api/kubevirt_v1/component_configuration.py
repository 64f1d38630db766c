"""How components reach the API server, and what their servers accept."""

from __future__ import annotations

from typing import Annotated

from msgspec import field

from virtplane.api.markers import (
    SET,
    ApiStruct,
    Int,
    one_of,
)


class TokenBucketRateLimiter(ApiStruct, kw_only=True):
    """Requests per second, and how many may come at once."""

    burst: Int
    qps: float


class RateLimiter(ApiStruct, kw_only=True):
    """A limit of requests."""

    token_bucket_rate_limiter: TokenBucketRateLimiter | None = None


class RESTClientConfiguration(ApiStruct, kw_only=True):
    """How hard a component may press the API server."""

    rate_limiter: RateLimiter | None = None


class ReloadableComponentConfiguration(ApiStruct, kw_only=True):
    """Settings that a component takes over without a restart."""

    rest_client: RESTClientConfiguration | None = None


class TLSConfiguration(ApiStruct, kw_only=True):
    """The oldest TLS version and the ciphers accepted."""

    ciphers: Annotated[tuple[str, ...], SET] = ()
    min_tls_version: Annotated[
        str | None, one_of("VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13")
    ] = field(default=None, name="minTLSVersion")
