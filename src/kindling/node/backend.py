"""What pods need from the API: config maps, secrets, claims, tokens, pull secrets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from kindling.node.images import host_image
from kindling.node.images.manager import ImageManager, Wanted, credentials_of
from kindling.node.images.references import normalize
from kindling.node.pods.downward_api import NodeFacts
from kindling.node.pods.environment import Sources, referenced
from kindling.node.programs import run_program
from kindling.node.volumes import mounts
from kindling.node.volumes.content import ContentProblem, Materials, Token, references, token_requests
from kubecore.client import Client
from kubecore.errors import StatusError, ignoring
from kubecore.json import JsonObject, encode, get_list, get_object, get_str
from kubecore.objects import times
from kubecore.objects.claim import is_bound
from kubecore.resources import (
    CONFIG_MAPS,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    SECRETS,
    SERVICE_ACCOUNTS,
    ResourceType,
)

_DAY = 24 * 3600
_MOST_BYTES = 96 << 20
"""Of the config maps and secrets that are fetched at once: what the files of a pod may have, in base64."""
_MOST_LOGIN_BYTES = 2 << 20
"""Of a pod's pull secrets; one has a few hundred."""
_CTR_SECONDS = 240.0
"""Mounting an image may mean unpacking it."""


class _Room:
    """How much may still be fetched for one purpose: it is all in memory at once, and a tenant may name any
    number of objects of a megabyte each.
    """

    def __init__(self, most: int = _MOST_BYTES) -> None:
        self._most, self._left = most, most

    def take(self, found: JsonObject) -> JsonObject:
        """The object. Raises ContentProblem where it is more than there is room for."""
        self._left -= len(encode(found))
        if self._left < 0:
            text = f"the config maps and secrets that it names have more than {self._most} bytes together"
            raise ContentProblem(text)
        return found


class ApiBackend:
    """Reads for pods, as this node."""

    def __init__(
        self,
        client: Client,
        images: ImageManager,
        record_event: Callable[[JsonObject, str, str, str, str], None],
        node: Callable[[], NodeFacts],
        services: Callable[[], Sequence[JsonObject]],
        pod_ips: Callable[[str], tuple[str, ...]],
        host_files: host_image.HostFiles,
    ) -> None:
        self._client = client
        self._images = images
        self._record_event = record_event
        self._node = node
        self._services = services
        self._pod_ips = pod_ips
        self._host_files = host_files
        self._tokens: dict[tuple[str, str, int], Token] = {}

    async def sources(self, pod: JsonObject) -> Sources:
        """Objects for the environments of a pod. Raises ContentProblem where they are too large."""
        config_maps, secrets = referenced(pod)
        namespace, room = get_str(pod, "metadata", "namespace"), _Room()
        return Sources(
            await self._fetch(CONFIG_MAPS, namespace, config_maps, room),
            await self._fetch(SECRETS, namespace, secrets, room),
            self._services(),
        )

    async def pull_secrets(self, pod: JsonObject) -> list[JsonObject]:
        """The pod's pull secrets that exist. Raises ContentProblem where they are too large."""
        names = {get_str(item, "name") for item in get_list(pod, "spec", "imagePullSecrets")}
        namespace, room = get_str(pod, "metadata", "namespace"), _Room(_MOST_LOGIN_BYTES)
        return list((await self._fetch(SECRETS, namespace, names, room)).values())

    async def materials(self, pod: JsonObject, volume: JsonObject) -> Materials:
        """Objects and tokens for a rendered volume. Raises ContentProblem, also where they are too large."""
        config_maps, secrets = references(volume)
        namespace, room = get_str(pod, "metadata", "namespace"), _Room()
        return Materials(
            pod=pod,
            node=self._node(),
            config_maps=await self._fetch(CONFIG_MAPS, namespace, config_maps, room),
            secrets=await self._fetch(SECRETS, namespace, secrets, room),
            tokens={wanted: await self.token(pod, *wanted) for wanted in token_requests(volume)},
            pod_ips=self._pod_ips(get_str(pod, "metadata", "uid")),
        )

    async def claim(self, namespace: str, name: str) -> tuple[JsonObject, JsonObject]:
        """A bound claim and its volume, which must be bound to it. Raises ContentProblem."""
        try:
            claim = await self._client.get(PERSISTENT_VOLUME_CLAIMS, name, namespace)
            volume = get_str(claim, "spec", "volumeName")
            if not is_bound(claim) or get_str(claim, "status", "phase") == "Lost":
                raise ContentProblem(f"PVC {namespace}/{name} is not bound")
            persistent = await self._client.get(PERSISTENT_VOLUMES, volume)
        except StatusError as error:
            raise ContentProblem(f"error processing PVC {namespace}/{name}: {error.message}") from error
        if get_str(persistent, "spec", "claimRef", "uid") != get_str(claim, "metadata", "uid"):
            raise ContentProblem(f"volume {volume} of PVC {namespace}/{name} is bound to another claim")
        return claim, persistent

    async def mount_image(self, pod: JsonObject, reference: str, policy: str, target: Path) -> None:
        """Mount an image's files, pulling it by `policy`. Raises ImageProblem, ContentProblem."""
        name = normalize(reference)
        if host_image.is_host_image(reference):
            await asyncio.to_thread(self._host_files.mount_tree, target)
            return
        credentials = [login for secret in await self.pull_secrets(pod) for login in credentials_of(secret)]

        def record_event(kind: str, reason: str, message: str) -> None:
            self._record_event(pod, kind, reason, message, "")

        wanted = Wanted(get_str(pod, "metadata", "uid"), reference, policy)
        await self._images.ensure(wanted, record_event, credentials)
        await _ctr("images", "mount", name, str(target))
        # The mount of a single layer is a bind mount of containerd's own directory: new mounts must not
        # propagate to it.
        mounts.make_private(target)

    async def unmount_image(self, target: Path) -> None:
        """Unmount and forget the view that `mount_image` made."""
        if mounts.is_mounted(target):
            await _ctr("images", "unmount", "--rm", str(target))

    async def _fetch(
        self, resource: ResourceType, namespace: str, names: set[str], room: _Room
    ) -> dict[str, JsonObject]:
        found = {}
        for name in sorted(names):
            with ignoring(404):
                found[name] = room.take(await self._client.get(resource, name, namespace))
        return found

    async def token(self, pod: JsonObject, audience: str, seconds: int) -> Token:
        """A token for the pod's service account, renewed at 80 % of its life or after a day.

        Raises ContentProblem.
        """
        key = (get_str(pod, "metadata", "uid"), audience, seconds)
        known = self._tokens.get(key)
        if known is not None and time.time() < known.refresh_at:
            return known
        request: JsonObject = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "expirationSeconds": seconds,
                "audiences": [audience] if audience else [],
                "boundObjectRef": {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": get_str(pod, "metadata", "name"),
                    "uid": key[0],
                },
            },
        }
        account = get_str(pod, "spec", "serviceAccountName", default="default")
        namespace = get_str(pod, "metadata", "namespace")
        try:
            answer = await self._client.create(
                SERVICE_ACCOUNTS, request, namespace, subresource="token", name=account
            )
        except StatusError as error:
            if known is not None and time.time() < known.expires_at:
                return known
            raise ContentProblem(f"failed to fetch token: {error.message}") from error
        status = get_object(answer, "status")
        expires = times.parse_time(get_str(status, "expirationTimestamp")).timestamp()
        now = time.time()
        token = Token(get_str(status, "token"), expires, min(now + 0.8 * (expires - now), now + _DAY))
        self._tokens[key] = token
        return token

    def forget(self, uid: str) -> None:
        """Stop renewing the tokens of a deleted pod."""
        for key in [key for key in self._tokens if key[0] == uid]:
            del self._tokens[key]


async def _ctr(*arguments: str) -> None:
    code, output, problem = await run_program("ctr", "-n", "k8s.io", *arguments, seconds=_CTR_SECONDS)
    if code != 0:
        raise ContentProblem(f"ctr {arguments[0]} {arguments[1]}: {problem or output}")
