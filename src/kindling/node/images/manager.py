"""Getting images onto the node, by each container's policy, with back-off for those that fail."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from kindling.node.backoff import Backoff
from kindling.node.images import host_image
from kindling.node.runtime.interface import Image, Runtime, RuntimeFailure
from kubecore.json import JsonObject, get_object, get_str

Announce = Callable[[str, str, str], None]
"""Records an event about the container: type, reason, message."""


class ImageProblem(Exception):
    """The image is not there; `reason` is the container's waiting reason."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Credential:
    """One registry login of a pull secret."""

    registry: str
    auth: Mapping[str, str]


class ImageManager:
    """Images of one node."""

    def __init__(self, runtime: Runtime, clock: Callable[[], float] = time.time) -> None:
        self._runtime = runtime
        self._clock = clock
        self._backoff = Backoff()
        self._pulls: dict[str, asyncio.Lock] = {}

    async def ensure(
        self, container: JsonObject, announce: Announce, credentials: Sequence[Credential] = ()
    ) -> Image:
        """The container's image, pulled if its policy wants. Raises ImageProblem or RuntimeFailure."""
        reference = get_str(container, "image")
        policy = get_str(container, "imagePullPolicy", default="IfNotPresent")
        present = await self._runtime.image_status(normalize(reference))
        if host_image.is_host_image(reference) and present is not None:
            policy = "IfNotPresent"
        if present is not None and policy in ("IfNotPresent", "Never"):
            announce(
                "Normal",
                "Pulled",
                f'Container image "{reference}" already present on machine and can be accessed by the pod',
            )
            return present
        if policy == "Never":
            message = f'Container image "{reference}" is not present with pull policy of Never'
            announce("Warning", "ErrImageNeverPull", message)
            raise ImageProblem("ErrImageNeverPull", message)
        async with self._pulls.setdefault(reference, asyncio.Lock()):
            return await self._pull(reference, announce, credentials)

    async def _pull(self, reference: str, announce: Announce, credentials: Sequence[Credential]) -> Image:
        if self._backoff.is_waiting(reference, self._clock()):
            message = f'Back-off pulling image "{reference}"'
            announce("Normal", "BackOff", message)
            raise ImageProblem("ImagePullBackOff", message)
        announce("Normal", "Pulling", f'Pulling image "{reference}"')
        begun = self._clock()
        try:
            await self._runtime.pull_image(normalize(reference), matching_auth(reference, credentials))
            image = await self._runtime.image_status(normalize(reference))
        except RuntimeFailure as error:
            self._backoff.failed(reference, self._clock())
            announce("Warning", "Failed", f'Failed to pull image "{reference}": {error}')
            raise ImageProblem("ErrImagePull", str(error)) from error
        if image is None:
            raise ImageProblem("ErrImagePull", f'image "{reference}" vanished after it was pulled')
        self._backoff.forget(reference)
        took = f"{self._clock() - begun:.3f}s".replace(".000s", "s")
        announce(
            "Normal",
            "Pulled",
            f'Successfully pulled image "{reference}" in {took} ({took} including waiting). '
            f"Image size: {image.size} bytes.",
        )
        return image


def normalize(reference: str) -> str:
    """A reference with registry and tag spelled out, as the runtime stores it."""
    name, at, digest = reference.partition("@")
    first, slash, rest = name.partition("/")
    if not slash:
        name = f"docker.io/library/{name}"
    elif not ("." in first or ":" in first or first == "localhost"):
        name = f"docker.io/{first}/{rest}"
    if not at and ":" not in name.rsplit("/", 1)[-1]:
        name += ":latest"
    return name + at + digest


def credentials_of(secret: JsonObject) -> list[Credential]:
    """Logins of a pull secret (kubernetes.io/dockerconfigjson or dockercfg)."""
    data = get_object(secret, "data")
    raw = data.get(".dockerconfigjson") or data.get(".dockercfg")
    if not isinstance(raw, str):
        return []
    document: Any = orjson.loads(base64.b64decode(raw))
    entries = document.get("auths", document) if ".dockerconfigjson" in data else document
    found = []
    for registry, entry in entries.items():
        auth = {key: str(entry[key]) for key in ("username", "password") if key in entry}
        if "auth" in entry and "username" not in auth:
            user, _, password = base64.b64decode(entry["auth"]).decode().partition(":")
            auth = {"username": user, "password": password}
        found.append(Credential(registry, auth))
    return found


def matching_auth(reference: str, credentials: Sequence[Credential]) -> Mapping[str, str] | None:
    """The login whose registry (and path) is the longest prefix of the image's name."""
    name = normalize(reference)
    best: Credential | None = None
    for credential in credentials:
        registry = credential.registry.removeprefix("https://").removeprefix("http://").rstrip("/")
        registry = registry.removesuffix("/v1").removesuffix("/v2").replace("index.docker.io", "docker.io")
        if name.startswith(registry) and (best is None or len(registry) > len(best.registry)):
            best = credential
    return best.auth if best else None
