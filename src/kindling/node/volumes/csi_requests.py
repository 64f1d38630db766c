"""What drivers are asked with: secrets, contexts and tokens read from the API server as this node."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import orjson

from kindling.node.secret_values import decode_text
from kindling.node.volumes import csi_source, ownership
from kindling.node.volumes.content import ContentProblem, Token
from kindling.node.volumes.csi_records import Record
from kindling.node.volumes.csi_registry import Driver
from kindling.node.volumes.csi_source import Source
from kubecore.client import Client
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_bool, get_list, get_str
from kubecore.objects.times import format_time
from kubecore.resources import CSI_DRIVERS, SECRETS

_DEFAULT_TOKEN_SECONDS = 3600

IssueToken = Callable[[JsonObject, str, int], Awaitable[Token]]
"""The token of a pod's service account for an audience, for some seconds. Raises ContentProblem."""


class CsiRequests:
    """Makes the requests to drivers."""

    def __init__(self, client: Client, issue_token: IssueToken | None = None) -> None:
        self._client = client
        self._issue_token = issue_token

    async def rules(self, driver: str) -> JsonObject | None:
        """The CSIDriver object of a driver; None when it does not exist."""
        try:
            return await self._client.get(CSI_DRIVERS, driver)
        except StatusError as error:
            if error.code != 404:
                raise
            return None

    async def stage(
        self, pod: JsonObject, source: Source, record: Record, driver: Driver, context: JsonObject
    ) -> dict[str, Any]:
        """NodeStageVolume. Raises ContentProblem."""
        return {
            **_common(pod, source, record, driver, context),
            "volume_context": dict(source.attributes),
            "secrets": await self._secrets(source, "nodeStageSecretRef"),
        }

    async def publish(
        self,
        pod: JsonObject,
        source: Source,
        record: Record,
        driver: Driver,
        context: JsonObject,
        rules: JsonObject | None,
    ) -> dict[str, Any]:
        """NodePublishVolume. Raises ContentProblem."""
        secrets = await self._secrets(source, "nodePublishSecretRef")
        attributes = {**source.attributes, **csi_source.pod_info(pod, source, rules)}
        if tokens := await self._tokens(pod, rules):
            hidden = get_bool(rules or {}, "spec", "serviceAccountTokenInSecrets")
            (secrets if hidden else attributes)[csi_source.TOKENS] = tokens
        return {
            **_common(pod, source, record, driver, context),
            "volume_context": attributes,
            "target_path": str(record.target),
            "readonly": source.read_only,
            "secrets": secrets,
        }

    async def expand(self, source: Source, record: Record, driver: Driver, size: int) -> dict[str, Any]:
        """NodeExpandVolume. Raises ContentProblem."""
        return {
            "volume_id": source.handle,
            "volume_path": str(record.target),
            "capacity_range": {"required_bytes": size},
            "volume_capability": csi_source.capability(source, driver.capabilities, None),
            "secrets": await self._secrets(source, "nodeExpandSecretRef"),
            **({"staging_target_path": str(record.staging)} if record.staged else {}),
        }

    async def _tokens(self, pod: JsonObject, rules: JsonObject | None) -> str:
        """The tokens that the driver wants of the pod's service account, as a JSON object by audience."""
        tokens = {}
        for request in get_list(rules or {}, "spec", "tokenRequests"):
            if self._issue_token is None:
                raise ContentProblem("service account tokens cannot be issued")
            audience = get_str(request, "audience")
            seconds = int(request.get("expirationSeconds") or _DEFAULT_TOKEN_SECONDS)
            token = await self._issue_token(pod, audience, seconds)
            expires = format_time(datetime.fromtimestamp(token.expires_at, UTC))
            tokens[audience] = {"token": token.text, "expirationTimestamp": expires}
        return orjson.dumps(tokens).decode() if tokens else ""

    async def _secrets(self, source: Source, kind: str) -> dict[str, str]:
        if kind not in source.secrets:
            return {}
        namespace, name = source.secrets[kind]
        try:
            found = await self._client.get(SECRETS, name, namespace)
        except StatusError as error:
            label = kind[0].upper() + kind[1:]
            raise ContentProblem(f"fetching {label} {namespace}/{name} failed: {error.message}") from error
        try:
            return {key: decode_text(value) for key, value in (found.get("data") or {}).items()}
        except ValueError as error:
            raise ContentProblem(f"secret {namespace}/{name} cannot be read: {error}") from error


def _common(
    pod: JsonObject, source: Source, record: Record, driver: Driver, context: JsonObject
) -> dict[str, Any]:
    group = ownership.fs_group(pod)
    return {
        "volume_id": source.handle,
        "publish_context": dict(context),
        "volume_capability": csi_source.capability(source, driver.capabilities, group),
        **({"staging_target_path": str(record.staging)} if record.staged else {}),
    }
