"""Who decides about certificate requests, who signs them, and for whom nothing is signed."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.support.admission import Cluster

from kindling.apiserver.admission.certificates import Certificates
from kubecore.errors import StatusError
from kubecore.json import JsonObject, deep_copy
from kubecore.resources import CERTIFICATE_REQUESTS


def _encoded(*organisations: str) -> str:
    names = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in organisations]
    subject = x509.Name([*names, x509.NameAttribute(NameOID.COMMON_NAME, "ann")])
    key = ec.generate_private_key(ec.SECP256R1())
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    return base64.b64encode(request.public_bytes(serialization.Encoding.PEM)).decode()


def _request(signer: str = "example.com/mine", *organisations: str, **status: Any) -> JsonObject:
    return {
        "metadata": {"name": "r"},
        "spec": {"signerName": signer, "request": _encoded(*organisations), "usages": ["client auth"]},
        "status": status,
    }


async def refusal(cluster: Cluster, obj: JsonObject, **more: Any) -> str:
    try:
        await Certificates(cluster.environment).validate(cluster.request(CERTIFICATE_REQUESTS, obj, **more))
    except StatusError as error:
        assert error.code == 403
        return error.message.partition(" is forbidden: ")[2]
    return ""


@pytest.mark.parametrize("granted", ["example.com/mine", "example.com/*"])
async def test_deciding_takes_the_right_to_approve_for_the_signer_or_its_domain(granted: str) -> None:
    cluster = Cluster()
    cluster.may = lambda query: (query.verb, query.resource, query.name) == ("approve", "signers", granted)
    old = _request()
    new = {**deep_copy(old), "status": {"conditions": [{"type": "Approved", "status": "True"}]}}
    assert await refusal(cluster, new, operation="UPDATE", old=old, subresource="approval") == ""


async def test_deciding_without_the_right_is_refused() -> None:
    cluster = Cluster()
    cluster.may = lambda query: query.name == "example.org/*"
    old = _request()
    said = await refusal(cluster, deep_copy(old), operation="UPDATE", old=old, subresource="approval")
    assert said == 'user not permitted to approve requests with signerName "example.com/mine"'


async def test_signing_takes_the_right_to_sign() -> None:
    cluster = Cluster()
    cluster.may = lambda query: query.verb != "sign"
    old = _request()
    signed = {**deep_copy(old), "status": {"certificate": "eA=="}}
    said = await refusal(cluster, signed, operation="UPDATE", old=old, subresource="status")
    assert said == 'user not permitted to sign requests with signerName "example.com/mine"'
    assert await refusal(cluster, deep_copy(old), operation="UPDATE", old=old, subresource="status") == ""


async def test_the_client_signer_makes_no_masters() -> None:
    cluster = Cluster()
    client = "kubernetes.io/kube-apiserver-client"
    assert await refusal(cluster, _request(client, "crew", "system:masters")) == (
        "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"
    )
    assert await refusal(cluster, _request(client, "crew")) == ""
    assert await refusal(cluster, _request("example.com/mine", "system:masters")) == ""
