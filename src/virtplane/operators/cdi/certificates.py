"""CDI's authorities and certificates, and their lifetimes.

The certificates of upload servers and of clone sources are issued by cdi-deployment for each pod.
"""

from __future__ import annotations

from datetime import timedelta

from kubecore.certificates import Lifetime, Lifetimes
from virtplane.api import cdi_names as names
from virtplane.api.cdi_v1beta1.cdi import CDICertConfig
from virtplane.api.durations import parse_duration
from virtplane.api.kubevirt_v1.kubevirt import CertConfig
from virtplane.operators.cdi.product import PRODUCT
from virtplane.operators.kit.certificates import CertificateSet, CertificateSpec

BUNDLE_KEY = "ca-bundle.crt"

CERTIFICATES = CertificateSet(
    PRODUCT,
    authorities=(
        names.API_SERVER_SIGNER,
        names.UPLOAD_PROXY_SIGNER,
        names.UPLOAD_SERVER_SIGNER,
        names.UPLOAD_CLIENT_SIGNER,
    ),
    certificates=(
        CertificateSpec(
            names.API_SERVER_CERTIFICATE,
            names.API_SERVICE,
            names.API_SERVER_SIGNER,
            service=names.API_SERVICE,
        ),
        CertificateSpec(
            names.UPLOAD_PROXY_CERTIFICATE,
            names.UPLOAD_PROXY,
            names.UPLOAD_PROXY_SIGNER,
            service=names.UPLOAD_PROXY,
        ),
        CertificateSpec(
            names.UPLOAD_CLIENT_CERTIFICATE,
            names.UPLOAD_CLIENT_NAME,
            names.UPLOAD_CLIENT_SIGNER,
            client=True,
        ),
    ),
    bundle_suffix="-bundle",
    bundle_key=BUNDLE_KEY,
)
"""The first authority is that of cdi-apiserver."""


class BadLifetime(Exception):
    """A duration in the object cannot be read."""


def lifetimes(config: CDICertConfig) -> Lifetimes:
    """How long certificates live: authorities two days, others one; renewed in the middle of that.

    Raises BadLifetime.
    """
    return Lifetimes(
        _lifetime(config.ca, "48h"), _lifetime(config.server, "24h"), _lifetime(config.client, "24h")
    )


def _lifetime(config: CertConfig, default: str) -> Lifetime:
    try:
        length = parse_duration(config.duration or default)
        before = parse_duration(config.renew_before) if config.renew_before else length * 0.5
    except ValueError as error:
        raise BadLifetime(f"spec.certConfig: {error}") from error
    return Lifetime(length, min(before, max(length - timedelta(seconds=1), timedelta())))
