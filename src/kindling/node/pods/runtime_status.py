"""The runtime status of one pod (its sandboxes and containers), and the agent's own state of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from kindling.node.runtime.interface import Container, ContainerState, Sandbox
from kubecore.json import JsonObject


class ProbeResult(Enum):
    """The latest result of a probe of one container."""

    UNKNOWN = "unknown"
    SUCCESS = "success"
    FAILURE = "failure"


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a container is not running."""

    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class ProbeResults:
    """Probe results of one container; None where it has no such probe."""

    startup: ProbeResult | None = None
    readiness: ProbeResult | None = None
    liveness: ProbeResult | None = None
    message: str = ""

    @property
    def has_started(self) -> bool:
        """Whether its startup probe, if any, has succeeded."""
        return self.startup in (None, ProbeResult.SUCCESS)

    @property
    def is_ready(self) -> bool:
        """Whether it has started and its readiness probe, if any, succeeds."""
        return self.has_started and self.readiness in (None, ProbeResult.SUCCESS)


@dataclass(frozen=True)
class PodRuntimeStatus:
    """Sandboxes and containers of one pod, newest first."""

    sandboxes: tuple[Sandbox, ...] = ()
    containers: Mapping[str, tuple[Container, ...]] = field(default_factory=dict)

    @property
    def sandbox(self) -> Sandbox | None:
        """The newest sandbox."""
        return self.sandboxes[0] if self.sandboxes else None

    @property
    def ips(self) -> tuple[str, ...]:
        """The pod's addresses while its sandbox is ready."""
        return self.sandbox.ips if self.sandbox is not None and self.sandbox.ready else ()

    def newest(self, name: str) -> Container | None:
        """The newest container `name`, whatever sandbox it is in."""
        found = self.containers.get(name, ())
        return found[0] if found else None

    def current(self, name: str) -> Container | None:
        """The newest container `name` in the newest sandbox."""
        if self.sandbox is None:
            return None
        found = (item for item in self.containers.get(name, ()) if item.sandbox_id == self.sandbox.id)
        return next(found, None)

    def all_containers(self) -> Iterable[Container]:
        """Every container."""
        for group in self.containers.values():
            yield from group

    @property
    def has_running(self) -> bool:
        """Whether any container runs, or is in an unknown state."""
        alive = (ContainerState.RUNNING, ContainerState.UNKNOWN)
        return any(item.state in alive for item in self.all_containers())


@dataclass(frozen=True)
class LocalState:
    """State of a pod that only the agent has, not the runtime; it is lost at a restart and rebuilt."""

    waiting: Mapping[str, Waiting] = field(default_factory=dict)
    probe_results: Mapping[str, ProbeResults] = field(default_factory=dict)
    """By container id."""
    starting: frozenset[str] = frozenset()
    """Ids of containers whose postStart hook has not returned."""
    resized: frozenset[str] = frozenset()
    """Names of containers that are restarted because their resources change."""
    actuated: Mapping[str, JsonObject] = field(default_factory=dict)
    """The resources that containers run with, by name, where they are known."""
    resize_conditions: Sequence[JsonObject] = ()

    def probe_results_of(self, container: Container) -> ProbeResults:
        """The probes' results of `container`."""
        return self.probe_results.get(container.id, ProbeResults())
