"""Certificates of upload servers."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.x509 import DNSName, SubjectAlternativeName
from cryptography.x509.oid import NameOID
from tests.support.cdi_claims import claim
from tests.support.cdi_memory import memory_cluster

from kubecore import resources as core
from kubecore.certificates import KeyPair, Leaf, is_issued_by, issue, new_authority
from virtplane.api.cdi_names import UPLOAD_CLIENT_NAME
from virtplane.api.cdi_v1beta1.cdi import CDICertConfig
from virtplane.api.kubevirt_v1.kubevirt import CertConfig
from virtplane.storage.cdi.controller.pods.cloner import client_name
from virtplane.storage.cdi.controller.workers.certificates import NoAuthority, SecretIssuer

_NOW = datetime.now(UTC)
_HOUR = timedelta(hours=1)


def _encoded(pair: KeyPair) -> dict[str, str]:
    found = {"tls.crt": pair.certificate, "tls.key": pair.key}
    return {name: base64.b64encode(value).decode() for name, value in found.items()}


@pytest.mark.feature("STO-50")
async def test_server_is_signed_by_the_operators_authority_for_its_service() -> None:
    signer, clients = (new_authority(name, timedelta(days=2), _NOW) for name in ("server", "client"))
    config = CDICertConfig(server=CertConfig(duration="2h"))
    async with memory_cluster() as cluster:
        issuer = SecretIssuer(cluster.client, "cdi", lambda: config)
        secret = {"metadata": {"name": "cdi-uploadserver-signer", "namespace": "cdi"}}
        bundle = {"metadata": {"name": "cdi-uploadserver-client-signer-bundle", "namespace": "cdi"}}
        cluster.api.put(core.SECRETS, secret)
        cluster.api.put(core.CONFIG_MAPS, {**bundle, "data": {"ca-bundle.crt": clients.certificate.decode()}})
        with pytest.raises(NoAuthority, match="cdi-uploadserver-signer"):
            await issuer.issue("cdi-upload-dv", "ns")
        await cluster.client.patch(
            core.SECRETS, "cdi-uploadserver-signer", {"data": _encoded(signer)}, "cdi", type="merge"
        )
        data = {name: base64.b64decode(text) for name, text in (await issuer.issue("svc", "ns")).items()}
    pair = KeyPair(data["tls.crt"], data["tls.key"])
    assert is_issued_by(pair, signer)
    assert data["ca.crt"] == clients.certificate
    assert pair.parsed.not_valid_after_utc <= datetime.now(UTC) + timedelta(hours=2)
    names = pair.parsed.extensions.get_extension_for_class(SubjectAlternativeName).value
    assert "svc.ns.svc" in names.get_values_for_type(DNSName)


async def test_server_is_replaced_when_the_first_certificate_is_renewed() -> None:
    config = CDICertConfig(client=CertConfig(duration="4h", renew_before="1h"))
    async with memory_cluster() as cluster:
        text = SecretIssuer(cluster.client, "cdi", lambda: config).deadline()
    assert timedelta(hours=2.9) < datetime.fromisoformat(text) - datetime.now(UTC) <= timedelta(hours=3)


@pytest.mark.feature("STO-23")
@pytest.mark.parametrize("length", [1, 40, 253])
def test_sender_of_a_clone_has_a_name_that_fits_a_certificate(length: int) -> None:
    target = claim("tmp-pvc-6b7a2b52-9a0f-4a4b-8f7e-1c3f5a5d7e90")
    name = client_name("images", "s" * length, target)
    pair = issue(Leaf(name, is_client=True), new_authority("clients", timedelta(days=2), _NOW), _HOUR, _NOW)
    assert [each.value for each in pair.parsed.subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == [name]
    assert name != client_name("images", "t" * length, target)
    assert name != UPLOAD_CLIENT_NAME
