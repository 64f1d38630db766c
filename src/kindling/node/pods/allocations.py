"""The resources that pods have been allocated, which may lag behind what their specs want.

A resize changes the spec; what the node grants of it is kept here, on disk, so that an agent which is
restarted neither forgets a grant nor grants twice. ``actuated`` is what containers run with.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from kindling.node import state_files
from kubecore.json import JsonObject, get_list, get_object, get_str

Grant = dict[str, JsonObject]
"""Resources by container; those of the pod itself under the empty name."""

_LOST = "resizes that the node has not granted yet count as granted; nothing needs to be done"

_KINDS = ("containers", "initContainers")


def wanted(pod: JsonObject) -> Grant:
    """What a pod's spec asks for."""
    found: Grant = {"": get_object(pod, "spec", "resources")}
    for kind in _KINDS:
        for container in get_list(pod, "spec", kind):
            found[get_str(container, "name")] = get_object(container, "resources")
    return found


def view(pod: JsonObject, grant: Mapping[str, JsonObject]) -> JsonObject:
    """The pod with the resources of a grant instead of those of its spec."""
    if all(grant.get(name, resources) == resources for name, resources in wanted(pod).items()):
        return pod
    spec = dict(get_object(pod, "spec"))
    for kind in _KINDS:
        if kind in spec:
            spec[kind] = [
                {**item, "resources": grant.get(get_str(item, "name"), get_object(item, "resources"))}
                for item in get_list(spec, kind)
            ]
    if grant.get(""):
        spec["resources"] = grant[""]
    return {**pod, "spec": spec}


class _Stored(msgspec.Struct):
    """What the file holds: grants by the uid of their pod."""

    granted: dict[str, Grant] = {}
    actuated: dict[str, Grant] = {}


class Allocations:
    """The grants of all pods of a node, kept in the file `path`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        stored = state_files.read(path, _Stored, _LOST) or _Stored()
        self._granted = stored.granted
        self._actuated = stored.actuated

    def granted(self, pod: JsonObject) -> Grant:
        """What the pod has been granted; what it asks for, where nothing was ever granted."""
        return self._granted.get(get_str(pod, "metadata", "uid")) or wanted(pod)

    def actuated(self, uid: str) -> Mapping[str, JsonObject]:
        """What the pod's containers run with, as far as it is known."""
        return self._actuated.get(uid, {})

    def grant(self, pod: JsonObject) -> None:
        """Grant what the pod's spec asks for. Raises OSError."""
        uid = get_str(pod, "metadata", "uid")
        new = wanted(pod)
        if self._granted.get(uid) != new:
            self._granted[uid] = new
            self._save()

    def actuate(self, uid: str, container: str, resources: JsonObject) -> None:
        """Note what a container runs with. Raises OSError."""
        known = self._actuated.setdefault(uid, {})
        if known.get(container) != resources:
            known[container] = resources
            self._save()

    def forget(self, uid: str) -> None:
        """Forget a pod that is gone. Raises OSError."""
        gone = [self._granted.pop(uid, None), self._actuated.pop(uid, None)]
        if any(each is not None for each in gone):
            self._save()

    def retain(self, uids: set[str]) -> None:
        """Forget all pods except these (after a restart of the agent). Raises OSError."""
        for uid in (set(self._granted) | set(self._actuated)) - uids:
            self.forget(uid)

    def _save(self) -> None:
        state_files.write(self._path, _Stored(granted=self._granted, actuated=self._actuated))
