"""The graph of owners and dependents of all kinds, for the garbage collector. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.resources import ResourceType

FOREGROUND_FINALIZER = "foregroundDeletion"
ORPHAN_FINALIZER = "orphan"


@dataclass(frozen=True, slots=True)
class Reference:
    """One owner reference."""

    api_version: str
    kind: str
    name: str
    uid: str
    blocks: bool

    @property
    def group(self) -> str:
        """The owner's API group."""
        return self.api_version.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class Node:
    """One object, reduced to what ownership needs."""

    resource: ResourceType
    namespace: str
    name: str
    uid: str
    owners: tuple[Reference, ...]
    is_dying: bool
    finalizers: frozenset[str]

    @property
    def waits_for_dependents(self) -> bool:
        """Whether it is being deleted in the foreground."""
        return self.is_dying and FOREGROUND_FINALIZER in self.finalizers

    @property
    def orphans_dependents(self) -> bool:
        """Whether it is being deleted and its dependents are to be orphaned first."""
        return self.is_dying and ORPHAN_FINALIZER in self.finalizers

    def blocks(self, owner_uid: str) -> bool:
        """Whether the deletion of that owner waits for this object."""
        return any(reference.uid == owner_uid and reference.blocks for reference in self.owners)


def references(obj: JsonObject) -> tuple[Reference, ...]:
    """The owner references of an object."""
    return tuple(
        Reference(
            entry.get("apiVersion", ""),
            entry.get("kind", ""),
            entry.get("name", ""),
            entry.get("uid", ""),
            entry.get("blockOwnerDeletion") is True,
        )
        for entry in meta.owner_references(obj)
    )


def node_of(resource: ResourceType, obj: JsonObject) -> Node:
    """The node of an object of `resource`."""
    return Node(
        resource,
        meta.namespace(obj),
        meta.name(obj),
        meta.uid(obj),
        references(obj),
        meta.is_being_deleted(obj),
        frozenset(meta.finalizers(obj)),
    )


class OwnershipGraph:
    """Nodes by uid, and the dependents of every uid, known or not."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._dependents: dict[str, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def get(self, uid: str) -> Node | None:
        """The node with `uid`."""
        return self._nodes.get(uid)

    def dependents(self, uid: str) -> list[Node]:
        """The objects that name `uid` as an owner."""
        return [self._nodes[dependent] for dependent in self._dependents.get(uid, ())]

    def put(self, node: Node) -> list[str]:
        """Add or replace a node; returns the uids to reconcile because of it.

        These are the object itself if an owner is unknown or being deleted, or if it is itself being deleted
        with foreground or orphan policy; and owners whose foreground deletion it blocked.
        """
        old = self._nodes.get(node.uid)
        self._unlink(old)
        self._nodes[node.uid] = node
        for reference in node.owners:
            self._dependents.setdefault(reference.uid, {})[node.uid] = None
        look = [reference.uid for reference in (old.owners if old else ()) if self._is_waiting(reference.uid)]
        if node.waits_for_dependents or node.orphans_dependents:
            look.append(node.uid)
            look += [dependent.uid for dependent in self.dependents(node.uid)]
        elif any(self._needs_look(reference, node) for reference in node.owners):
            look.append(node.uid)
        return look

    def remove(self, uid: str) -> list[str]:
        """Remove a node; returns the uids to reconcile because of it: dependents and waiting owners."""
        node = self._nodes.pop(uid, None)
        self._unlink(node)
        look = [dependent.uid for dependent in self.dependents(uid)]
        for reference in node.owners if node else ():
            if self._is_waiting(reference.uid):
                look.append(reference.uid)
        return look

    def uids_of(self, resource: ResourceType) -> Iterable[str]:
        """The uids of all nodes of one resource."""
        return [uid for uid, node in self._nodes.items() if node.resource == resource]

    def _unlink(self, node: Node | None) -> None:
        for reference in node.owners if node else ():
            members = self._dependents.get(reference.uid)
            if members is not None:
                members.pop(node.uid if node else "", None)
                if not members:
                    del self._dependents[reference.uid]

    def _needs_look(self, reference: Reference, node: Node) -> bool:
        owner = self._nodes.get(reference.uid)
        if owner is None or owner.waits_for_dependents:
            return True
        # An owner in another namespace does not count; look the reference up on the API server.
        return owner.name != reference.name or bool(owner.namespace and owner.namespace != node.namespace)

    def _is_waiting(self, uid: str) -> bool:
        owner = self._nodes.get(uid)
        return owner is not None and owner.waits_for_dependents
