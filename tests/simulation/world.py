"""What really runs on the nodes, whatever the API says: containers, launchers, guests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.simulation.faults import Note

from kubecore.json import JsonObject, get_object
from kubecore.objects import meta
from virtplane.compute.handler.libvirtd.calls import DomainState

RUNNING = DomainState("Running", "Booted")
Change = Callable[[], None]


class TwoGuests(AssertionError):
    """Two guests of one machine ran at once: their disks are lost."""


@dataclass(slots=True)
class Launcher:
    """The process in a launcher pod."""

    vmi_uid: str
    vm: str
    """Namespace and name of the instance."""
    node: str
    domain: DomainState | None = None
    is_terminating: bool = False
    vcpus: int = 0
    """The CPUs of the guest; none before somebody looks at them."""


@dataclass(slots=True)
class Containers:
    """A pod's containers on their node."""

    uid: str
    key: tuple[str, str]
    node: str
    launcher: Launcher | None = None
    exit_code: int | None = None
    """How they ended; None while they run."""
    is_job: bool = False
    listeners: list[Change] = field(default_factory=list)

    def changed(self) -> None:
        """Tell whoever looks at them from their node."""
        for listener in list(self.listeners):
            listener()


class World:
    """All containers of all nodes by the uid of their pod."""

    def __init__(self, note: Note) -> None:
        self.pods: dict[str, Containers] = {}
        self.node_listeners: dict[str, Callable[[tuple[str, str]], None]] = {}
        """What each node agent wants to hear: the keys of pods whose containers changed."""
        self.has_trouble = True
        """Whether jobs and migrations may fail."""
        self.failed_moves: set[str] = set()
        """The migrations that have failed, by uid."""
        self._note = note

    def start(self, pod: JsonObject, node: str) -> Containers:
        """The node starts a pod's containers."""
        found = Containers(meta.uid(pod), meta.key(pod), node)
        if meta.labels(pod).get("kubevirt.io") == "virt-launcher":
            owner = meta.controller_of(pod) or {}
            found.launcher = Launcher(
                owner.get("uid", ""), f"{meta.namespace(pod)}/{owner.get('name')}", node
            )
        found.is_job = (meta.controller_of(pod) or {}).get("kind") == "Job"
        self.pods[found.uid] = found
        self._note(f"{node}: pod {meta.name(pod)} runs")
        return found

    def end(self, containers: Containers, code: int) -> None:
        """They end, and a guest in them with them."""
        if containers.exit_code is not None:
            return
        containers.exit_code = code
        self._note(f"{containers.node}: pod {containers.key[1]} ended with {code}")
        self._changed(containers)

    def forget(self, containers: Containers) -> None:
        """Nothing is left of them on the node."""
        self.end(containers, 137)
        del self.pods[containers.uid]

    def guests(self, vm: str = "") -> list[Containers]:
        """Pods in which a guest runs now, of one machine or of all."""
        return [
            each
            for each in self.pods.values()
            if each.exit_code is None
            and each.launcher is not None
            and each.launcher.domain is not None
            and each.launcher.domain.is_active
            and vm in ("", each.launcher.vm)
        ]

    def boot(self, containers: Containers) -> None:
        """The guest of a launcher starts. Raises TwoGuests where one of the same name runs already."""
        launcher = containers.launcher
        assert launcher is not None
        others = [each for each in self.guests(launcher.vm) if each is not containers]
        if others:
            where = ", ".join(f"{each.key[1]} on {each.node}" for each in [*others, containers])
            raise TwoGuests(f"two guests of {launcher.vm}: {where}")
        self._note(f"{containers.node}: guest {launcher.vm} boots in {containers.key[1]}")
        self.set_domain(containers, RUNNING)

    def set_domain(self, containers: Containers, state: DomainState) -> None:
        """The guest of a launcher enters a state."""
        if containers.launcher is not None and containers.exit_code is None:
            containers.launcher.domain = state
            self._changed(containers)

    def move(self, source: Containers, target: Containers) -> None:
        """A live migration's hand-over: one moment here, the next there."""
        assert source.launcher is not None and target.launcher is not None
        source.launcher.domain = DomainState("Shutoff", "Migrated")
        self.boot(target)
        self._changed(source)

    def terminate(self, containers: Containers) -> None:
        """The node asks the containers to end."""
        if containers.launcher is not None and not containers.launcher.is_terminating:
            containers.launcher.is_terminating = True
            self._changed(containers)

    def _changed(self, containers: Containers) -> None:
        containers.changed()
        listener = self.node_listeners.get(containers.node)
        if listener is not None:
            listener(containers.key)


def is_gated(pod: JsonObject) -> bool:
    """Whether a readiness gate of the pod is closed."""
    gates = [gate["conditionType"] for gate in get_object(pod, "spec").get("readinessGates") or []]
    return not all(meta.is_condition_true(pod, gate) for gate in gates)
