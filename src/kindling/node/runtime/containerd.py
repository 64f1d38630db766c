"""containerd through CRI v1 on its own socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import grpc
import grpc.aio
import orjson

from kindling.node.runtime.interface import (
    Change,
    Container,
    ContainerState,
    ExecResult,
    Image,
    RuntimeFailure,
    Sandbox,
)
from kubecore.json import JsonObject
from kubecore.wire import Message, load_interface, to_plain

_CHANNEL_OPTIONS = (
    # gRPC servers in Go reject the path of a unix socket as the authority of a request.
    ("grpc.default_authority", "localhost"),
    ("grpc.max_receive_message_length", 16 * 1024 * 1024),
    # One connection per channel object: no sharing of subchannels with other channels in this process.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)
_STATES = {state.value: state for state in ContainerState}
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_SHORT = 30.0
"""Seconds that an ordinary call may take."""
_LONG = 240.0
"""Seconds for calls that start, stop or fetch things."""


class Containerd:
    """A `Runtime` on the socket at `path`. Use as an async context manager."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._cri = load_interface("cri-runtime-v1")
        self._channel: Any = None
        self._runtime: dict[str, Callable[..., Any]] = {}
        self._images: dict[str, Callable[..., Any]] = {}

    async def __aenter__(self) -> Self:
        self._channel = grpc.aio.insecure_channel(f"unix:{self._path}", options=_CHANNEL_OPTIONS)
        self._runtime = self._cri.stub(self._channel, "RuntimeService")
        self._images = self._cri.stub(self._channel, "ImageService")
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self._channel.close()

    async def _call(
        self,
        method: str,
        request: Mapping[str, Any] | None = None,
        seconds: float = _SHORT,
        images: bool = False,
    ) -> Message:
        service = "ImageService" if images else "RuntimeService"
        stub = (self._images if images else self._runtime)[method]
        message = self._cri.methods[service][method].request(**(request or {}))
        try:
            return await stub(message, timeout=seconds, wait_for_ready=True)
        except grpc.aio.AioRpcError as error:
            raise RuntimeFailure(error.details() or method, error.code().name) from error

    async def version(self) -> tuple[str, str]:
        """Name and version."""
        answer = await self._call("Version")
        return answer.runtime_name, answer.runtime_version

    async def not_ready_reasons(self) -> list[str]:
        """Messages of false runtime conditions."""
        answer = await self._call("Status", seconds=5)
        return [
            f"{condition.type}: {condition.reason} {condition.message}".strip()
            for condition in answer.status.conditions
            if not condition.status
        ]

    async def run_sandbox(self, config: Mapping[str, Any]) -> str:
        """Create and start a sandbox."""
        return str((await self._call("RunPodSandbox", {"config": config}, _LONG)).pod_sandbox_id)

    async def stop_sandbox(self, sandbox_id: str) -> None:
        """Stop a sandbox; a missing one counts as stopped."""
        await self._tolerant("StopPodSandbox", {"pod_sandbox_id": sandbox_id})

    async def remove_sandbox(self, sandbox_id: str) -> None:
        """Remove a sandbox; a missing one counts as removed."""
        await self._tolerant("RemovePodSandbox", {"pod_sandbox_id": sandbox_id})

    async def sandbox_status(self, sandbox_id: str) -> Sandbox:
        """The sandbox with its addresses."""
        status = (await self._call("PodSandboxStatus", {"pod_sandbox_id": sandbox_id})).status
        primary = [status.network.ip] if status.network.ip else []
        return _sandbox(status, (*primary, *(item.ip for item in status.network.additional_ips)))

    async def sandbox_network(self, sandbox_id: str) -> JsonObject:
        """The CNI result from the verbose status; empty where there is none, as with hostNetwork."""
        answer = await self._call("PodSandboxStatus", {"pod_sandbox_id": sandbox_id, "verbose": True})
        info: JsonObject = orjson.loads(answer.info.get("info") or "{}")
        return info.get("cniResult") or {}

    async def list_sandboxes(self, known: Mapping[str, Sandbox] = _NOTHING) -> list[Sandbox]:
        """All sandboxes, without addresses. Those that are as ready as in `known`, by id, are taken from
        there: nothing else of them changes.
        """
        items = (await self._call("ListPodSandbox")).items
        return [
            same
            if (same := known.get(item.id)) is not None and same.ready is (item.state == 0)
            else _sandbox(item)
            for item in items
        ]

    async def create_container(
        self, sandbox_id: str, config: Mapping[str, Any], sandbox_config: Mapping[str, Any]
    ) -> str:
        """Create a container."""
        request = {"pod_sandbox_id": sandbox_id, "config": config, "sandbox_config": sandbox_config}
        return str((await self._call("CreateContainer", request, _LONG)).container_id)

    async def start_container(self, container_id: str) -> None:
        """Start a created container."""
        await self._call("StartContainer", {"container_id": container_id}, _LONG)

    async def update_resources(self, container_id: str, resources: Mapping[str, Any]) -> None:
        """Change the limits of a running container."""
        await self._call("UpdateContainerResources", {"container_id": container_id, "linux": resources})

    async def stop_container(self, container_id: str, timeout_seconds: int) -> None:
        """Stop a container; a missing one counts as stopped."""
        request = {"container_id": container_id, "timeout": timeout_seconds}
        await self._tolerant("StopContainer", request, timeout_seconds + _LONG)

    async def remove_container(self, container_id: str) -> None:
        """Remove a container; a missing one counts as removed."""
        await self._tolerant("RemoveContainer", {"container_id": container_id})

    async def list_containers(self, known: Mapping[str, Container] = _NOTHING) -> list[Container]:
        """All containers, without start, finish and exit. Those in the same state as in `known`, by id, are
        taken from there: nothing else of them changes.
        """
        items = (await self._call("ListContainers")).containers
        return [
            same
            if (same := known.get(item.id)) is not None and same.state is _state(item.state)
            else _listed(item)
            for item in items
        ]

    async def container_status(self, container_id: str) -> Container:
        """Everything about one container."""
        status = (await self._call("ContainerStatus", {"container_id": container_id})).status
        return Container(
            id=status.id,
            sandbox_id="",
            name=status.metadata.name,
            attempt=status.metadata.attempt,
            state=_state(status.state),
            created_at=status.created_at,
            labels=dict(status.labels),
            annotations=dict(status.annotations),
            image=status.image.image,
            image_ref=status.image_ref,
            started_at=status.started_at,
            finished_at=status.finished_at,
            exit_code=status.exit_code,
            reason=status.reason,
            message=status.message,
            log_path=status.log_path,
        )

    async def exec_sync(self, container_id: str, command: Sequence[str], timeout_seconds: int) -> ExecResult:
        """Run a command to its end."""
        request = {"container_id": container_id, "cmd": list(command), "timeout": timeout_seconds}
        answer = await self._call(
            "ExecSync", request, timeout_seconds + _SHORT if timeout_seconds else 24 * 3600
        )
        return ExecResult(answer.exit_code, answer.stdout, answer.stderr)

    async def exec_url(self, container_id: str, command: Sequence[str], streams: Mapping[str, bool]) -> str:
        """Prepare an exec."""
        request = {"container_id": container_id, "cmd": list(command), **streams}
        return str((await self._call("Exec", request)).url)

    async def attach_url(self, container_id: str, streams: Mapping[str, bool]) -> str:
        """Prepare an attach."""
        return str((await self._call("Attach", {"container_id": container_id, **streams})).url)

    async def port_forward_url(self, sandbox_id: str, ports: Sequence[int]) -> str:
        """Prepare a port-forward."""
        return str((await self._call("PortForward", {"pod_sandbox_id": sandbox_id, "port": list(ports)})).url)

    async def reopen_log(self, container_id: str) -> None:
        """Reopen the container's log file."""
        await self._call("ReopenContainerLog", {"container_id": container_id})

    async def container_stats(self) -> list[dict[str, Any]]:
        """CRI's statistics of all containers."""
        return [to_plain(item) for item in (await self._call("ListContainerStats")).stats]

    async def image_file_system(self) -> tuple[Path, int, int]:
        """Where images and containers are kept, and the bytes and inodes of images. Raises RuntimeFailure."""
        systems = (await self._call("ImageFsInfo", images=True)).image_filesystems
        if not systems:
            raise RuntimeFailure("the runtime names no file system of images", "NOT_FOUND")
        found = systems[0]
        return Path(found.fs_id.mountpoint), found.used_bytes.value, found.inodes_used.value

    async def list_images(self) -> list[Image]:
        """All images."""
        return [_image(item) for item in (await self._call("ListImages", images=True)).images]

    async def image_status(self, reference: str) -> Image | None:
        """One image."""
        answer = await self._call("ImageStatus", {"image": {"image": reference}}, images=True)
        return _image(answer.image) if answer.image.id else None

    async def pull_image(self, reference: str, auth: Mapping[str, str] | None = None) -> str:
        """Pull an image."""
        request: dict[str, Any] = {"image": {"image": reference}}
        if auth:
            request["auth"] = dict(auth)
        return str((await self._call("PullImage", request, 3600, images=True)).image_ref)

    async def remove_image(self, reference: str) -> None:
        """Remove an image."""
        await self._call("RemoveImage", {"image": {"image": reference}}, images=True)

    async def changes(self) -> AsyncIterator[Change | None]:
        """Changes by containerd's own events: the CRI of containerd 1.6 has no event stream. None when
        anything may have changed. Reconnects for ever.

        CRI reports the end of a container right after its task was deleted.
        """
        events = load_interface("containerd-events-v1")
        subscribe = events.stub(self._channel, "Events")["Subscribe"]
        request = events.message("SubscribeRequest", {"filters": ['topic~="^/tasks/(exit|delete|start)"']})
        while True:
            yield None
            try:
                async for envelope in subscribe(request, wait_for_ready=True):
                    change = change_of(envelope)
                    if change is not None:
                        yield change
            except grpc.aio.AioRpcError:
                await asyncio.sleep(0.5)

    async def _tolerant(self, method: str, request: Mapping[str, Any], seconds: float = _LONG) -> None:
        try:
            await self._call(method, request, seconds)
        except RuntimeFailure as error:
            if not error.is_not_found:
                raise


def change_of(envelope: Message) -> Change | None:
    """What an event of containerd changes; None of a program that was run in a container, such as a probe."""
    name = envelope.topic.rpartition("/")[2]
    kind = {"start": "TaskStart", "exit": "TaskExit", "delete": "TaskDelete"}[name]
    event = load_interface("containerd-events-v1").messages[kind].FromString(envelope.event.value)
    if name == "start":
        return Change(event.container_id, ContainerState.RUNNING)
    return Change(event.container_id, ContainerState.EXITED) if event.id in ("", event.container_id) else None


def _state(number: int) -> ContainerState:
    """The container state of a CRI value; UNKNOWN for values that this version does not know."""
    return _STATES.get(number, ContainerState.UNKNOWN)


def _listed(item: Message) -> Container:
    return Container(
        id=item.id,
        sandbox_id=item.pod_sandbox_id,
        name=item.metadata.name,
        attempt=item.metadata.attempt,
        state=_state(item.state),
        created_at=item.created_at,
        labels=dict(item.labels),
        annotations=dict(item.annotations),
        image=item.image.image,
        image_ref=item.image_ref,
    )


def _sandbox(message: Message, ips: tuple[str, ...] = ()) -> Sandbox:
    return Sandbox(
        id=message.id,
        name=message.metadata.name,
        namespace=message.metadata.namespace,
        uid=message.metadata.uid,
        attempt=message.metadata.attempt,
        ready=message.state == 0,
        created_at=message.created_at,
        labels=dict(message.labels),
        annotations=dict(message.annotations),
        ips=ips,
    )


def _image(message: Message) -> Image:
    return Image(
        id=message.id,
        tags=tuple(message.repo_tags),
        digests=tuple(message.repo_digests),
        size=message.size,
        user=message.username,
        uid=message.uid.value if message.HasField("uid") else None,
        pinned=message.pinned,
    )
