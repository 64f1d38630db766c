"""Requests for upload tokens. They are answered, and stored nowhere; the claim need not exist."""

from __future__ import annotations

from collections.abc import Callable

import orjson
from aiohttp import web

from kubecore.json import JsonObject, get_object
from kubecore.objects.structs import UnfitDocument, decode
from virtplane.api.cdi_v1beta1.upload import UploadTokenRequest
from virtplane.api.resources import UPLOAD_TOKEN_REQUESTS
from virtplane.storage.cdi.tokens import Operation, Payload, Signer

_METADATA = ("name", "generateName", "namespace", "labels", "annotations", "ownerReferences", "finalizers")
"""What a request says of itself that is repeated in the answer."""


class Uploads:
    """Answers with tokens of the signer that `signer` gives."""

    def __init__(self, signer: Callable[[], Signer | None]) -> None:
        self._signer = signer

    async def create(self, request: web.Request) -> web.Response:
        """The request with a token. The user has been found to be allowed to ask."""
        try:
            document = orjson.loads(await request.read())
            asked = decode(UploadTokenRequest, document)
        except (orjson.JSONDecodeError, UnfitDocument, TypeError) as error:
            return web.Response(status=400, text=str(error))
        signer = self._signer()
        if signer is None:
            return web.Response(status=500, text="there is no key to sign tokens with yet: try again")
        payload = Payload(Operation.UPLOAD, asked.spec.pvc_name, request.match_info["namespace"])
        answer = _answer(document, asked.spec.pvc_name, signer.sign(payload))
        return web.json_response(answer, headers={"X-Content-Type-Options": "nosniff"})


def _answer(document: JsonObject, claim: str, token: str) -> JsonObject:
    given = get_object(document, "metadata")
    metadata = {key: given[key] for key in _METADATA if given.get(key)}
    return {
        "kind": document.get("kind") or UPLOAD_TOKEN_REQUESTS.kind,
        "apiVersion": document.get("apiVersion") or UPLOAD_TOKEN_REQUESTS.api_version,
        "metadata": {**metadata, "creationTimestamp": None},
        "spec": {"pvcName": claim},
        "status": {"token": token},
    }
