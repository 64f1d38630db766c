"""Pulling images by each container's pull policy, with back-off for those that fail."""

from __future__ import annotations

import asyncio
import base64
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

import orjson

from kindling.node.backoff import Backoff
from kindling.node.images import host_image, references
from kindling.node.images.references import normalize
from kindling.node.runtime.containerd import Containerd
from kindling.node.runtime.interface import Image, RuntimeFailure
from kubecore.json import JsonObject, get_object, get_str
from kubecore.objects.fields import go_quote

_log = logging.getLogger(__name__)

RecordEvent = Callable[[str, str, str], None]
"""Records an event about the container: type, reason, message."""


class ImageProblem(Exception):
    """The image cannot be used; `reason` becomes the container's waiting reason."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Credential:
    """One registry login of a pull secret."""

    registry: str
    auth: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Wanted:
    """An image that a pod needs. `policy` is a pull policy."""

    pod_uid: str
    reference: str
    policy: str = "IfNotPresent"

    @property
    def key(self) -> str:
        """The back-off is per pod, because another pod may have the right pull secret."""
        return f"{self.pod_uid}_{self.reference}"


class ImageManager:
    """Images of one node. Reasons, events and messages are a kubelet's."""

    def __init__(self, runtime: Containerd, clock: Callable[[], float] = time.time) -> None:
        self._runtime = runtime
        self._clock = clock
        self._backoff = Backoff()
        self._last_problem: dict[str, str] = {}
        self._pulls: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def ensure(
        self, wanted: Wanted, record_event: RecordEvent, credentials: Sequence[Credential] = ()
    ) -> Image:
        """The image, pulled if its policy wants. Raises ImageProblem, RuntimeFailure (UNAVAILABLE)."""
        reference, policy = wanted.reference, wanted.policy
        if wrong := references.problem(reference):
            shown = go_quote(reference)
            message = f"Failed to apply default image tag {shown}: couldn't parse image name {shown}: {wrong}"
            record_event("Warning", "InspectFailed", message)
            raise ImageProblem("InvalidImageName", message)
        present = await self._inspect(reference, record_event)
        if host_image.is_host_image(reference) and present is not None:
            policy = "IfNotPresent"
        if present is not None and policy in ("IfNotPresent", "Never"):
            record_event(
                "Normal",
                "Pulled",
                f'Container image "{reference}" already present on machine and can be accessed by the pod',
            )
            return present
        if policy == "Never":
            message = f'Container image "{reference}" is not present with pull policy of Never'
            record_event("Warning", "ErrImageNeverPull", message)
            raise ImageProblem("ErrImageNeverPull", message)
        async with self._pulls.setdefault(reference, asyncio.Lock()):
            return await self._pull(wanted, record_event, credentials)

    def forget(self, pod_uid: str) -> None:
        """Forget the pulls and the back-off of a deleted pod."""
        self._backoff.forget_prefix(f"{pod_uid}_")
        for key in [key for key in self._last_problem if key.startswith(f"{pod_uid}_")]:
            del self._last_problem[key]

    async def _inspect(self, reference: str, record_event: RecordEvent) -> Image | None:
        try:
            return await self._runtime.image_status(normalize(reference))
        except RuntimeFailure as error:
            if error.code == "UNAVAILABLE":
                raise
            message = f'Failed to inspect image "{reference}": {error.rpc_text}'
            record_event("Warning", "InspectFailed", message)
            raise ImageProblem("ImageInspectError", message) from error

    async def _pull(
        self, wanted: Wanted, record_event: RecordEvent, credentials: Sequence[Credential]
    ) -> Image:
        reference = wanted.reference
        if self._backoff.is_waiting(wanted.key, self._clock()):
            message = f'Back-off pulling image "{reference}"'
            record_event("Normal", "BackOff", message)
            last = self._last_problem.get(wanted.key)
            raise ImageProblem("ImagePullBackOff", f"{message}: {last}" if last else message)
        record_event("Normal", "Pulling", f'Pulling image "{reference}"')
        begun = self._clock()
        try:
            await self._runtime.pull_image(normalize(reference), matching_auth(reference, credentials))
            image = await self._runtime.image_status(normalize(reference))
        except RuntimeFailure as error:
            raise self._failed(wanted, record_event, error.rpc_text) from error
        if image is None:
            raise self._failed(wanted, record_event, f'image "{reference}" vanished after it was pulled')
        self.forget_failures(wanted)
        took = f"{self._clock() - begun:.3f}s".replace(".000s", "s")
        record_event(
            "Normal",
            "Pulled",
            f'Successfully pulled image "{reference}" in {took} ({took} including waiting). '
            f"Image size: {image.size} bytes.",
        )
        return image

    def forget_failures(self, wanted: Wanted) -> None:
        """Forget the failures of an image that has been pulled."""
        self._backoff.forget(wanted.key)
        self._last_problem.pop(wanted.key, None)

    def _failed(self, wanted: Wanted, record_event: RecordEvent, problem: str) -> ImageProblem:
        """Record that an image could not be pulled; returns the exception to raise."""
        self._backoff.failed(wanted.key, self._clock())
        self._last_problem[wanted.key] = f"ErrImagePull: {problem}"
        record_event("Warning", "Failed", f'Failed to pull image "{wanted.reference}": {problem}')
        return ImageProblem("ErrImagePull", problem)


def credentials_of(secret: JsonObject) -> list[Credential]:
    """Credentials in a pull secret (kubernetes.io/dockerconfigjson or dockercfg); none in others."""
    try:
        return _credentials_of(get_object(secret, "data"))
    except (ValueError, TypeError, AttributeError) as error:
        name = f"{get_str(secret, 'metadata', 'namespace')}/{get_str(secret, 'metadata', 'name')}"
        _log.warning("pull secret %s is ignored, its registry credentials cannot be read: %s", name, error)
        return []


def _credentials_of(data: JsonObject) -> list[Credential]:
    raw = data.get(".dockerconfigjson") or data.get(".dockercfg")
    if not isinstance(raw, str):
        return []
    document: Any = orjson.loads(base64.b64decode(raw))
    entries = document.get("auths", document) if ".dockerconfigjson" in data else document
    found = []
    for registry, entry in entries.items():
        auth = {key: get_str(entry, key) for key in ("username", "password") if key in entry}
        if "auth" in entry and "username" not in auth:
            user, _, password = base64.b64decode(entry["auth"]).decode().partition(":")
            auth = {"username": user, "password": password}
        found.append(Credential(registry, auth))
    return found


def matching_auth(reference: str, credentials: Sequence[Credential]) -> Mapping[str, str] | None:
    """The login whose registry (and path) is the longest one that the image's name begins with."""
    name = normalize(reference)
    matching = {
        registry: credential.auth
        for credential in reversed(credentials)
        if _begins_with(name, registry := _registry(credential))
    }
    return matching[max(matching, key=len)] if matching else None


def _begins_with(name: str, registry: str) -> bool:
    """Not by a regular expression: a secret may have a hundred thousand registries."""
    return name.startswith(registry) and name[len(registry) : len(registry) + 1] in ("", "/", ":", "@")


def _registry(credential: Credential) -> str:
    registry = credential.registry.removeprefix("https://").removeprefix("http://").rstrip("/")
    registry = registry.removesuffix("/v1").removesuffix("/v2")
    return registry.replace("index.docker.io", "docker.io")
