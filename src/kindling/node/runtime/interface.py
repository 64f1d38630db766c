"""What the runtime says about containers, sandboxes and images, in the shape of CRI v1.

Configurations go there as plain documents with CRI's field names (``PodSandboxConfig``,
``ContainerConfig``), since they are rendered by pure functions and compared in tests; what comes back is
typed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

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
class Change:
    """The process of a container or sandbox started or ended; soon the runtime lists it in `state`, where
    RUNNING and EXITED stand for a sandbox that is ready and one that is not.
    """

    id: str
    state: ContainerState


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
