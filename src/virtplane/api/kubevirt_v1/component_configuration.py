"""How components reach the API server, and what their servers accept."""

from __future__ import annotations

from typing import Annotated

from msgspec import field

from virtplane.api.markers import (
    SET,
    ApiStruct,
    Int,
    describe,
    one_of,
)


class TokenBucketRateLimiter(ApiStruct, kw_only=True):
    """How many requests a component sends. A 0 means the component's default."""

    burst: Annotated[
        Int, describe("Requests sent at once after a pause; 400 by default, 100 for virt-handler.")
    ]
    qps: Annotated[
        float, describe("Requests per second in the long run; 200 by default, 50 for virt-handler.")
    ]


class RateLimiter(ApiStruct, kw_only=True):
    """How many requests the component sends; without it, its default."""

    token_bucket_rate_limiter: TokenBucketRateLimiter | None = None


class RESTClientConfiguration(ApiStruct, kw_only=True):
    """How the component talks to the API server."""

    rate_limiter: RateLimiter | None = None


class ReloadableComponentConfiguration(ApiStruct, kw_only=True):
    """Settings that a component takes over without a restart."""

    rest_client: RESTClientConfiguration | None = None


class TLSConfiguration(ApiStruct, kw_only=True):
    """The oldest version of TLS that the components' servers accept, and their ciphers."""

    ciphers: Annotated[
        tuple[str, ...],
        SET,
        describe(
            "Cipher suites for TLS 1.2 and older, by their IANA names. Needs a minTLSVersion below"
            " VersionTLS13."
        ),
    ] = ()
    min_tls_version: Annotated[
        str | None,
        one_of("VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"),
        describe("The oldest version that servers accept: VersionTLS10 to VersionTLS13; 1.2 by default."),
    ] = field(default=None, name="minTLSVersion")
