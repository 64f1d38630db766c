"""upload.cdi.kubevirt.io/v1beta1: tokens with which content may be uploaded."""

from __future__ import annotations

from typing import Annotated

from virtplane.api.markers import REQUIRED, ApiStruct
from virtplane.api.meta_v1 import ObjectMeta


class UploadTokenRequestSpec(ApiStruct, kw_only=True):
    """The claim to upload into."""

    pvc_name: Annotated[str, REQUIRED] = ""


class UploadTokenRequestStatus(ApiStruct, kw_only=True):
    """The token."""

    token: str | None = None


class UploadTokenRequest(ApiStruct, kw_only=True):
    """The wish for a token to upload into a claim. It is answered, and stored nowhere."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[UploadTokenRequestSpec, REQUIRED] = UploadTokenRequestSpec()
    status: UploadTokenRequestStatus = UploadTokenRequestStatus()
