"""Who may decide about certificate requests, who may sign them, and for whom nothing is signed.

Three plugins of Kubernetes in one: CertificateApproval, CertificateSigning, CertificateSubjectRestriction.
"""

from __future__ import annotations

import base64
import binascii

from kindling.apiserver.kinds.certificates import signing_requests
from kindling.apiserver.registry.admission import (
    Admission,
    AdmissionAttributes,
    AdmissionEnvironment,
    AuthorizationQuery,
)
from kubecore.json import JsonObject, get_list, get_str
from kubecore.objects.fields import go_quote
from kubecore.resources import CERTIFICATE_REQUESTS

from .base import concerns, refuse

_CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client"
_MASTERS = "system:masters"


class Certificates(Admission):
    """See the module."""

    def __init__(self, environment: AdmissionEnvironment) -> None:
        self._authorize = environment.authorize

    async def validate(self, attributes: AdmissionAttributes) -> None:
        """Refuse whom the signer's name is not open to."""
        request = attributes.object
        if request is None:
            return
        if concerns(attributes, CERTIFICATE_REQUESTS, "CREATE"):
            _check_subject(attributes, request)
        elif concerns(attributes, CERTIFICATE_REQUESTS, "UPDATE", subresource="approval"):
            self._check(attributes, request, "approve")
        elif concerns(attributes, CERTIFICATE_REQUESTS, "UPDATE", subresource="status") and _is_signed(
            attributes
        ):
            self._check(attributes, request, "sign")

    def _check(self, attributes: AdmissionAttributes, request: JsonObject, verb: str) -> None:
        signer = get_str(request, "spec", "signerName")
        user = attributes.ctx.user
        for name in (signer, f"{signer.partition('/')[0]}/*"):
            query = AuthorizationQuery(user, verb, CERTIFICATE_REQUESTS.group, "*", "signers", name=name)
            if self._authorize(query)[0]:
                return
        raise refuse(attributes, f"user not permitted to {verb} requests with signerName {go_quote(signer)}")


def _is_signed(attributes: AdmissionAttributes) -> bool:
    """Whether an update of the status changes fields that only the signer may write."""
    old, new = attributes.old_object or {}, attributes.object or {}
    return get_str(old, "status", "certificate") != get_str(new, "status", "certificate") or get_list(
        old, "status", "conditions"
    ) != get_list(new, "status", "conditions")


def _check_subject(attributes: AdmissionAttributes, request: JsonObject) -> None:
    """Refuse certificates for the group system:masters from the signer of API clients."""
    if get_str(request, "spec", "signerName") != _CLIENT_SIGNER:
        return
    if _MASTERS in _organisations(get_str(request, "spec", "request")):
        raise refuse(attributes, f"use of {_CLIENT_SIGNER} signer with {_MASTERS} group is not allowed")


def _organisations(encoded: str) -> list[str]:
    """The groups in the subject of a request; validation has already refused unreadable requests."""
    try:
        return signing_requests.organizations(base64.b64decode(encoded))
    except (ValueError, binascii.Error):
        return []
