"""CDI's authorities and certificates.

The certificates of upload servers and of clone sources are issued by cdi-deployment for each pod.
"""

from __future__ import annotations

from virtplane.api import cdi_labels
from virtplane.api import cdi_names as names
from virtplane.operators.cdi.product import PRODUCT
from virtplane.operators.kit.certificates import CertificateSet, CertificateSpec, NotedValidity

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
    noted=NotedValidity(
        cdi_labels.CERTIFICATE_NOT_BEFORE,
        cdi_labels.CERTIFICATE_NOT_AFTER,
        cdi_labels.CERTIFICATE_LIFETIME,
    ),
)
"""The first authority is that of cdi-apiserver."""
