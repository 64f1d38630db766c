"""KubeVirt's authorities and certificates, and their lifetimes."""

from __future__ import annotations

from datetime import timedelta

from kubecore.certificates import Lifetime, Lifetimes
from kubecore.json import JsonObject, get_object
from kubecore.objects.structs import decode
from virtplane.api.durations import parse_duration
from virtplane.api.kubevirt_v1.kubevirt import (
    CertConfig,
    KubeVirtCertificateRotateStrategy,
    KubeVirtSelfSignConfiguration,
)
from virtplane.operators.kit.certificates import CertificateSet, CertificateSpec
from virtplane.operators.kubevirt.product import KUBEVIRT

CA = "kubevirt-ca"
EXPORT_CA = "kubevirt-export-ca"
BACKUP_CA = "kubevirt-backup-ca"

API_SECRET = "kubevirt-virt-api-certs"
OPERATOR_SECRET = "kubevirt-operator-certs"
CONTROLLER_SECRET = "kubevirt-controller-certs"
HANDLER_SERVER_SECRET = "kubevirt-virt-handler-server-certs"
HANDLER_CLIENT_SECRET = "kubevirt-virt-handler-certs"
HANDLER_MIGRATION_SECRET = "kubevirt-virt-handler-migration-client-certs"
HANDLER_VSOCK_SECRET = "kubevirt-virt-handler-vsock-client-certs"
HANDLER_MONITORING_SECRET = "kubevirt-virt-handler-monitoring-client-certs"
EXPORT_PROXY_SECRET = "kubevirt-exportproxy-certs"


def _server(secret: str, service: str, common_name: str = "") -> CertificateSpec:
    return CertificateSpec(secret, common_name or service, CA, service=service)


def _client(secret: str, who: str) -> CertificateSpec:
    return CertificateSpec(secret, f"kubevirt.io:system:client:{who}", CA, client=True)


CERTIFICATES = CertificateSet(
    KUBEVIRT,
    authorities=(CA, EXPORT_CA, BACKUP_CA),
    certificates=(
        _server(API_SECRET, "virt-api"),
        _server(CONTROLLER_SECRET, "virt-controller"),
        _server(EXPORT_PROXY_SECRET, "virt-exportproxy"),
        _server(OPERATOR_SECRET, "kubevirt-operator-webhook"),
        _client(HANDLER_CLIENT_SECRET, "virt-handler"),
        _client(HANDLER_MIGRATION_SECRET, "migration"),
        _client(HANDLER_MONITORING_SECRET, "monitoring"),
        _server(HANDLER_SERVER_SECRET, "virt-handler", "kubevirt.io:system:node:virt-handler"),
        _client(HANDLER_VSOCK_SECRET, "vsock"),
    ),
)
"""Every certificate that components use."""


def lifetimes(spec: JsonObject) -> Lifetimes:
    """How long certificates live: authorities a week, others a day; renewed in the last fifth of it.

    Raises UnfitDocument.
    """
    strategy = decode(KubeVirtCertificateRotateStrategy, get_object(spec, "certificateRotateStrategy"))
    rotation = strategy.self_signed or KubeVirtSelfSignConfiguration()
    authority, server = rotation.ca or CertConfig(), rotation.server or CertConfig()
    return Lifetimes(
        _lifetime(
            authority.duration or rotation.ca_rotate_interval or "168h",
            authority.renew_before or rotation.ca_overlap_interval,
        ),
        _lifetime(server.duration or rotation.cert_rotate_interval or "24h", server.renew_before),
    )


def _lifetime(duration: str, renew_before: str | None) -> Lifetime:
    length = parse_duration(duration)
    before = parse_duration(renew_before) if renew_before else length * 0.2
    return Lifetime(length, min(before, max(length - timedelta(seconds=1), timedelta())))
