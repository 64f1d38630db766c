"""The contract between the node agent and whatever runs containers, in the shape of CRI v1.

Configurations are plain documents with CRI's field names (``PodSandboxConfig``, ``ContainerConfig``), since
they are rendered by pure functions and compared in tests; what comes back is typed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from kubecore.wire import rpc_text


class RuntimeFailure(Exception):
    """The runtime refused or failed. `code` is gRPC's name of the status (``NOT_FOUND``, ...)."""

    def __init__(self, message: str, code: str = "UNKNOWN") -> None:
        super().__init__(message)
        self.code = code

    @property
    def rpc_text(self) -> str:
        """The failure as a kubelet words it in events and statuses."""
        return rpc_text(self.code, str(self))

    @property
    def is_not_found(self) -> bool:
        """Whether the sandbox, container or image does not exist."""
        return self.code == "NOT_FOUND"


class ContainerState(Enum):
    """CRI's states of a container."""

    CREATED = 0
    RUNNING = 1
    EXITED = 2
    UNKNOWN = 3


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A pod sandbox. Times are nanoseconds since the epoch."""

    id: str
    name: str
    namespace: str
    uid: str
    attempt: int
    ready: bool
    created_at: int
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    ips: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Container:
    """A container. Times are nanoseconds since the epoch, 0 when it has not happened."""

    id: str
    sandbox_id: str
    name: str
    attempt: int
    state: ContainerState
    created_at: int
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    image: str = ""
    image_ref: str = ""
    started_at: int = 0
    finished_at: int = 0
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    log_path: str = ""


@dataclass(frozen=True, slots=True)
class Image:
    """An image on the node. `id` is the digest of its configuration, `size` is bytes."""

    id: str
    tags: tuple[str, ...]
    digests: tuple[str, ...]
    size: int
    user: str = ""
    uid: int | None = None
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class ExecResult:
    """What a command in a container did."""

    exit_code: int
    stdout: bytes
    stderr: bytes


class Runtime(Protocol):
    """What the node agent asks of a runtime. Every method may raise RuntimeFailure."""

    async def version(self) -> tuple[str, str]:
        """Name and version."""

    async def not_ready_reasons(self) -> list[str]:
        """Messages of the conditions that keep the runtime from running pods; empty when ready."""

    async def run_sandbox(self, config: Mapping[str, Any]) -> str:
        """Create and start a sandbox; its id."""

    async def stop_sandbox(self, sandbox_id: str) -> None:
        """Stop all containers and the network of a sandbox. Stopping twice is fine."""

    async def remove_sandbox(self, sandbox_id: str) -> None:
        """Remove a sandbox and its containers."""

    async def sandbox_status(self, sandbox_id: str) -> Sandbox:
        """The sandbox with its addresses."""

    async def sandbox_network(self, sandbox_id: str) -> Any:
        """The CNI result of a sandbox as a document; None without a network of its own."""

    async def list_sandboxes(self, labels: Mapping[str, str] | None = None) -> list[Sandbox]:
        """Sandboxes carrying `labels`, without addresses."""

    async def create_container(
        self, sandbox_id: str, config: Mapping[str, Any], sandbox_config: Mapping[str, Any]
    ) -> str:
        """Create a container; its id."""

    async def start_container(self, container_id: str) -> None:
        """Start a created container."""

    async def stop_container(self, container_id: str, timeout_seconds: int) -> None:
        """Send the stop signal, kill after `timeout_seconds`."""

    async def remove_container(self, container_id: str) -> None:
        """Remove a container; a running one is killed."""

    async def list_containers(self, labels: Mapping[str, str] | None = None) -> list[Container]:
        """Containers carrying `labels`, without start, finish and exit."""

    async def container_status(self, container_id: str) -> Container:
        """Everything about one container."""

    async def exec_sync(self, container_id: str, command: Sequence[str], timeout_seconds: int) -> ExecResult:
        """Run a command; a DEADLINE_EXCEEDED failure when it took longer."""

    async def exec_url(self, container_id: str, command: Sequence[str], streams: Mapping[str, bool]) -> str:
        """The URL of a prepared exec; `streams` has tty, stdin, stdout, stderr."""

    async def attach_url(self, container_id: str, streams: Mapping[str, bool]) -> str:
        """The URL of a prepared attach."""

    async def port_forward_url(self, sandbox_id: str, ports: Sequence[int]) -> str:
        """The URL of a prepared port-forward."""

    async def reopen_log(self, container_id: str) -> None:
        """Open the log file anew after it was moved away."""

    async def container_stats(self, container_id: str = "") -> list[dict[str, Any]]:
        """CRI's ContainerStats of one or all containers."""

    async def list_images(self) -> list[Image]:
        """All images."""

    async def image_status(self, reference: str) -> Image | None:
        """One image, None when absent."""

    async def pull_image(self, reference: str, auth: Mapping[str, str] | None = None) -> str:
        """Pull an image; its id."""

    async def remove_image(self, reference: str) -> None:
        """Remove an image."""

    def changes(self) -> AsyncIterator[None]:
        """Yields whenever some container or sandbox may have changed (at least once when connected)."""
