"""KubeVirt's authorities and certificates, and how long they live."""

from __future__ import annotations

from datetime import timedelta

from kubecore.json import JsonObject, get_object, get_str
from virtplane.api.durations import parse_duration
from virtplane.operators.kit.certificates import CertificateSet, CertificateSpec, Lifetime, Lifetimes
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
    """How long certificates live: authorities a week, others a day; renewed in the last fifth of it."""
    rotation = get_object(spec, "certificateRotateStrategy", "selfSigned")
    authority = get_str(rotation, "ca", "duration") or get_str(rotation, "caRotateInterval") or "168h"
    server = get_str(rotation, "server", "duration") or get_str(rotation, "certRotateInterval") or "24h"
    return Lifetimes(
        _lifetime(
            authority, get_str(rotation, "ca", "renewBefore") or get_str(rotation, "caOverlapInterval")
        ),
        _lifetime(server, get_str(rotation, "server", "renewBefore")),
    )


def _lifetime(duration: str, renew_before: str) -> Lifetime:
    length = parse_duration(duration)
    before = parse_duration(renew_before) if renew_before else length * 0.2
    return Lifetime(length, min(before, max(length - timedelta(seconds=1), timedelta())))
