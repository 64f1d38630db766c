"""Gives containers processors of their own, and all others the rest.

A container of a Guaranteed pod that requests a whole number of processors gets as many for itself (init
containers share: they are gone when the others run). Who has which is kept in ``cpu_manager_state``, as by a
kubelet, so that a restarted agent gives nothing twice.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

import orjson

from kindling.node import state_files
from kindling.node.cpus.topology import Place, choose, written
from kindling.node.options import NodeOptions, parse_cpus
from kindling.node.pods import resources
from kindling.node.pods.admission import Refusal
from kindling.node.runtime.containerd import Containerd
from kindling.node.runtime.interface import Container, ContainerState, RuntimeFailure
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects.quantity import Quantity

_log = logging.getLogger(__name__)

_STATIC, _NONE = "static", "none"


def exclusive(pod: JsonObject, container: JsonObject) -> int:
    """How many processors a container gets for itself; 0 for one that shares."""
    if resources.qos_class(pod) != "Guaranteed":
        return 0
    asked = get_object(container, "resources", "requests").get("cpu")
    milli = Quantity.parse(asked).milli_value if asked is not None else 0
    return milli // 1000 if milli % 1000 == 0 else 0


def _pinned(pod: JsonObject) -> Mapping[str, int]:
    sidecars = [
        item for item in get_list(pod, "spec", "initContainers") if item.get("restartPolicy") == "Always"
    ]
    found = {
        get_str(each, "name"): exclusive(pod, each) for each in sidecars + get_list(pod, "spec", "containers")
    }
    return {name: count for name, count in found.items() if count}


class CpuManager:
    """The processors of one node, by the policy of its options (``none``: everybody shares all)."""

    def __init__(
        self, options: NodeOptions, places: Mapping[int, Place], directory: Path, runtime: Containerd
    ) -> None:
        self._is_static = options.cpu_manager_policy == _STATIC
        self._places = places
        self._path = directory / "cpu_manager_state"
        self._runtime = runtime
        self._reserved = options.reserved_cpus or self._lowest(options.reserved("cpu"))
        self._assigned: dict[str, dict[str, frozenset[int]]] = self._stored() if self._is_static else {}
        self._applied: dict[str, str] = {}
        # Others on the node read the policy there.
        self._save()

    def _lowest(self, amount: Quantity) -> frozenset[int]:
        count = -(-amount.milli_value // 1000)
        return frozenset(sorted(self._places, key=lambda number: (self._places[number], number))[:count])

    @property
    def shared(self) -> frozenset[int]:
        """The processors of everybody who has none for himself, those reserved for the system included."""
        taken = {number for each in self._assigned.values() for cpus in each.values() for number in cpus}
        return frozenset(self._places) - taken

    def is_pinned(self, pod: JsonObject) -> bool:
        """Whether the pod has processors of its own."""
        return get_str(pod, "metadata", "uid") in self._assigned

    def admit(self, pod: JsonObject) -> Refusal | None:
        """Give the pod's containers their processors; why that is not possible, otherwise. Raises OSError."""
        wanted, uid = _pinned(pod), get_str(pod, "metadata", "uid")
        if not self._is_static or not wanted or uid in self._assigned:
            return None
        free = self.shared - self._reserved
        given: dict[str, frozenset[int]] = {}
        for name, count in wanted.items():
            cpus = choose(count, free, self._places)
            if cpus is None:
                text = (
                    "Allocate failed due to not enough cpus available to satisfy request: "
                    f"requested={count}, available={len(free)}, which is unexpected"
                )
                return Refusal("UnexpectedAdmissionError", text)
            given[name] = cpus
            free -= cpus
        self._assigned[uid] = given
        try:
            self._save()
        except OSError:
            del self._assigned[uid]  # an agent that is started again would give them to others
            raise
        return None

    def cpus(self, pod: JsonObject, container: str) -> tuple[str, bool]:
        """The processors of a container, and whether they are its own; empty for all."""
        own = self._assigned.get(get_str(pod, "metadata", "uid"), {}).get(container)
        if own is not None:
            return written(own), True
        return (written(self.shared) if self._is_static else ""), False

    def release(self, uid: str) -> None:
        """Take back the processors of a pod that has ended. Raises OSError."""
        if self._assigned.pop(uid, None) is not None:
            self._save()

    def retain(self, uids: set[str]) -> None:
        """Take back the processors of all pods except these (after a restart of the agent)."""
        for uid in set(self._assigned) - uids:
            self.release(uid)

    async def reconcile(self, running: Iterable[tuple[JsonObject, Container]]) -> None:
        """Have every running container use the processors that it has now."""
        if not self._is_static:
            return
        applied = {}
        for pod, container in running:
            if container.state is not ContainerState.RUNNING:
                continue
            wanted, _ = self.cpus(pod, container.name)
            if self._applied.get(container.id) != wanted:
                try:
                    await self._runtime.update_resources(container.id, {"cpuset_cpus": wanted})
                except RuntimeFailure as error:
                    text = "container %s does not get the processors %s, trying again: %s"
                    _log.warning(text, container.id, wanted, error)
                    continue
            applied[container.id] = wanted
        self._applied = applied

    def _stored(self) -> dict[str, dict[str, frozenset[int]]]:
        """Who had which processors; nobody where the file is missing, damaged, or of another machine."""
        try:
            found = orjson.loads(self._path.read_bytes())
            if get_str(found, "policyName") != _STATIC:
                return {}
            stored = {
                uid: {name: parse_cpus(text) for name, text in containers.items()}
                for uid, containers in get_object(found, "entries").items()
            }
        except FileNotFoundError:
            return {}
        except (ValueError, TypeError, AttributeError) as error:
            _log.error(
                "%s cannot be read, pods lose their processors at their next start: %s", self._path, error
            )
            return {}
        every = [number for each in stored.values() for cpus in each.values() for number in cpus]
        return stored if set(every) <= set(self._places) and len(every) == len(set(every)) else {}

    def _save(self) -> None:
        document = {
            "policyName": _STATIC if self._is_static else _NONE,
            "defaultCpuSet": written(self.shared),
            "entries": {
                uid: {name: written(cpus) for name, cpus in each.items()}
                for uid, each in self._assigned.items()
            },
        }
        state_files.write(self._path, document)
