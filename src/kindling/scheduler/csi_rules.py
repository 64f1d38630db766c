"""Rules of CSI drivers: how many volumes a node can have, and where there is storage left. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from kindling.scheduler import csi, volume_rules
from kindling.scheduler.snapshot import NodeInfo, Volumes
from kubecore.json import JsonObject, get_bool, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.quantity import Quantity
from kubecore.objects.selectors import from_label_selector_object
from kubecore.objects.storage_class import class_of

TOO_MANY_VOLUMES = "node(s) exceed max volume count"
NO_STORAGE = "node(s) did not have enough free storage"

_Names = dict[str, set[str]]
"""Unique names of volumes, by driver."""


class VolumeLimits:
    """Whether nodes can have the volumes of one pod beside those that they have."""

    def __init__(self, pod: JsonObject, volumes: Volumes) -> None:
        self._volumes = volumes
        self._wanted = _names([pod], volumes)

    def are_exceeded(self, info: NodeInfo) -> bool:
        """Whether a driver cannot have that many volumes on the node."""
        if not self._wanted:
            return False
        limits = _limits(self._volumes.csi_node(info.name))
        if limits.keys().isdisjoint(self._wanted):
            return False
        present = _names(info.pods, self._volumes)
        self._add_attached(info.name, present)
        for driver, names in self._wanted.items():
            known = present.get(driver, set())
            if driver in limits and names - known and len(names | known) > limits[driver]:
                return True
        return False

    def _add_attached(self, node: str, present: _Names) -> None:
        """Volumes that are still attached for pods that have left count as well."""
        for attachment in self._volumes.attachments():
            if get_str(attachment, "spec", "nodeName") != node:
                continue
            name = get_str(attachment, "spec", "source", "persistentVolumeName")
            found = self._volumes.volume(name)
            volume = csi.of_volume(found) if found is not None else None
            if volume is not None:
                present.setdefault(volume.driver, set()).add(volume.unique_name)


def _limits(csi_node: JsonObject | None) -> dict[str, int]:
    return {
        get_str(driver, "name"): count
        for driver in get_list(csi_node or {}, "spec", "drivers")
        if isinstance(count := get_object(driver, "allocatable").get("count"), int)
    }


def _names(pods: Iterable[JsonObject], volumes: Volumes) -> _Names:
    """The volumes of pods; one that is yet to be made counts for its claim."""
    result: _Names = {}
    for pod in pods:
        for name in volume_rules.claim_names(pod):
            claim = volumes.claim(meta.namespace(pod), name)
            if claim is None:
                continue
            found = volumes.volume(get_str(claim, "spec", "volumeName"))
            if found is not None:
                volume = csi.of_volume(found)
                if volume is not None:
                    result.setdefault(volume.driver, set()).add(volume.unique_name)
                continue
            storage_class = volumes.storage_class(class_of(claim))
            driver = get_str(storage_class or {}, "provisioner")
            if driver:
                result.setdefault(driver, set()).add(f"{meta.namespace(claim)}/{name}")
    return result


def has_storage(claim: JsonObject, storage_class: JsonObject, node: JsonObject, volumes: Volumes) -> bool:
    """Whether the claim's driver has storage for it where the node reaches it, if the driver tells."""
    driver = volumes.csi_driver(get_str(storage_class, "provisioner"))
    if driver is None or not get_bool(driver, "spec", "storageCapacity"):
        return True
    wanted = volume_rules.request(claim)
    return any(
        get_str(capacity, "storageClassName") == meta.name(storage_class)
        and _largest(capacity) >= wanted
        and _reaches(capacity, node)
        for capacity in volumes.capacities()
    )


def _largest(capacity: JsonObject) -> int:
    """The size in bytes of the largest volume that there is room for; -1 if the driver does not say."""
    size = capacity.get("maximumVolumeSize", capacity.get("capacity"))
    return -1 if size is None else Quantity.parse(size).value


def _reaches(capacity: JsonObject, node: JsonObject) -> bool:
    topology = capacity.get("nodeTopology")
    return topology is not None and from_label_selector_object(topology).matches(meta.labels(node))
