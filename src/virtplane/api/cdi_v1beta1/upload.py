"""upload.cdi.kubevirt.io/v1beta1: tokens with which content may be uploaded."""

from __future__ import annotations

from typing import Annotated

from virtplane.api.markers import REQUIRED, ApiStruct, describe
from virtplane.api.meta_v1 import ObjectMeta


class UploadTokenRequestSpec(ApiStruct, kw_only=True):
    """The claim to upload into."""

    pvc_name: Annotated[str, REQUIRED, describe("Name of the claim.")] = ""


class UploadTokenRequestStatus(ApiStruct, kw_only=True):
    """The token."""

    token: Annotated[
        str | None, describe("Token to show to the upload proxy; it is valid for 5 minutes.")
    ] = None


class UploadTokenRequest(ApiStruct, kw_only=True):
    """The wish for a token to upload into a claim. It is answered, and stored nowhere."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[UploadTokenRequestSpec, REQUIRED] = UploadTokenRequestSpec()
    status: UploadTokenRequestStatus = UploadTokenRequestStatus()
