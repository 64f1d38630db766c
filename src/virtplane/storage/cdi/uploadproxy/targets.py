"""Which claim an upload goes to, and whether it can take it yet."""

from __future__ import annotations

import html
import re

from kubecore.resources import PERSISTENT_VOLUME_CLAIMS
from virtplane.api import cdi_labels as names
from virtplane.api import cdi_names
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.storage.cdi.tokens import Operation, VerifiedToken

_BEARER = re.compile(r"bearer\s+([A-Za-z0-9\-._~+/]+)$", re.IGNORECASE)
_UPLOAD_SOURCE = "VolumeUploadSource"
_GROUP = "cdi.kubevirt.io"
_TRUE = "true"
_SUCCEEDED = "Succeeded"
_ARCHIVE = "archive"
_DISK = "kubevirt"
_ARCHIVE_PATHS = {"v1beta1": "/v1beta1/upload-archive", "v1alpha1": "/v1alpha1/upload-archive"}


class Rejected(Exception):
    """The claim cannot take this upload, and waiting changes nothing."""


def bearer(header: str) -> str:
    """The token in an Authorization header; empty for any other header."""
    found = _BEARER.match(header.strip())
    return found[1] if found else ""


def allows_upload(token: VerifiedToken) -> bool:
    """Whether the token is one for uploading to a claim."""
    kind = PERSISTENT_VOLUME_CLAIMS
    return (
        token.operation == Operation.UPLOAD
        and (token.group, token.resource) == (kind.group, kind.plural)
        and bool(token.name and token.namespace)
    )


def prime_name(claim: PersistentVolumeClaim) -> str:
    """The claim that is filled in the place of `claim` by a populator; empty where it is filled itself."""
    source = claim.spec.data_source_ref
    if source is None or (source.api_group, source.kind) != (_GROUP, _UPLOAD_SOURCE):
        return ""
    return cdi_names.prime_claim(claim.metadata.uid)


def check(name: str, claim: PersistentVolumeClaim) -> bool:
    """Whether the upload server of `claim` is ready; `name` is the claim that the user named.

    Raises Rejected.
    """
    given = claim.metadata.annotations
    if names.UPLOAD_TARGET not in given:
        raise Rejected(f"PVC {name} is not an upload target")
    if given.get(names.POD_PHASE) == _SUCCEEDED:
        raise Rejected(f"rejecting Upload Request for PVC {name} that already finished uploading")
    return given.get(names.POD_READY) == _TRUE


def server_url(name: str, claim: PersistentVolumeClaim, path: str) -> str:
    """The address at the claim's upload server for what came for `path`.

    `name` is the claim that the user named. Raises Rejected.
    """
    host = f"{cdi_names.upload_service(claim.metadata.name)}.{claim.metadata.namespace}.svc"
    content = claim.metadata.annotations.get(names.CONTENT_TYPE, "")
    if content == _ARCHIVE:
        path = _ARCHIVE_PATHS[path.split("/")[1]]
    elif content not in ("", _DISK):
        # The annotation may hold anything, and a browser may show the answer.
        shown = html.escape(content)
        raise Rejected(f"rejecting upload request for PVC {name} - upload content-type {shown} is invalid")
    return f"https://{host}:8443{path}"
