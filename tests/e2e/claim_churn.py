"""What users of claims ask for while everything is killed, chosen by chance."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import partial

from tests.e2e import claim_users
from tests.e2e.claim_traces import CLAIMS, SNAPSHOTS
from tests.e2e.claim_users import BLOCK, FILES, LOCAL, NAMESPACE, SHARED, SIZES, Claim, Ledger
from tests.e2e.clusters import CORE, Cluster
from tests.e2e.failures import ANSWERS_LOST, ApiError, Document, work_off

_PODS = 30
_SNAPSHOTS = 4
_GROWTH_MIB = 16
_GROUP = f"/apis/apps/v1/namespaces/{NAMESPACE}"
_PATHS = {
    "pod": f"{CORE}/namespaces/{NAMESPACE}/pods",
    "deployment": f"{_GROUP}/deployments",
    "statefulset": f"{_GROUP}/statefulsets",
}
_NODES = ("node01", "node02")
_SELECTED = "volume.kubernetes.io/selected-node"


@dataclass
class User:
    """Pods of one kind that use one claim, or as many as a StatefulSet has pods."""

    kind: str
    name: str
    claim: Claim
    replicas: int = 1
    keeps: bool = False
    pods: int = 0
    """How many bare pods there have been, one after the other."""

    @property
    def object_path(self) -> str:
        """Where the API has what makes the pods, or the present bare pod."""
        name = f"{self.name}-{self.pods}" if self.kind == "pod" else self.name
        return f"{_PATHS[self.kind]}/{name}"


@dataclass
class Copy:
    """A snapshot, and what was surely in the volume when it was asked for."""

    name: str
    claim: Claim
    tokens: dict[str, str]


@dataclass
class Users:
    """All users. What they want to do is done in order, and again where an answer was lost."""

    cluster: Cluster
    ledger: Ledger
    random: random.Random
    users: list[User] = field(default_factory=list)
    kept: list[Claim] = field(default_factory=list)
    """Claims that lie about after their pods."""
    snapshots: list[Copy] = field(default_factory=list)
    made: int = 0
    done: list[str] = field(default_factory=list)
    _todo: deque[Callable[[], None]] = field(default_factory=deque)

    def begin(self) -> None:
        """Ask for as many pods as there are to be."""
        while self._pods() < _PODS:
            self.act()

    def _pods(self) -> int:
        return sum(user.replicas for user in self.users)

    def act(self) -> None:
        """Do what a user might; where the API does not answer, the same once more at the next call."""
        if not self._todo:
            self._decide()
        self.catch_up()

    def catch_up(self) -> bool:
        """Do what is left to do; gives whether all is done."""
        return work_off(self._todo)

    def give_up(self, claims: Collection[str]) -> None:
        """Delete claims with the pods that wait for them."""
        for user in [each for each in self.users if each.claim.name in claims]:
            self._do(self._delete, user.object_path)
        for name in claims:
            self._do(self._delete, f"{CLAIMS}/{name}")

    def _decide(self) -> None:
        if self._pods() < _PODS:
            self._note(self._begin)
            return
        actions = (self._end, self._end, self._move, self._scale, self._grow, self._snapshot, self._forget)
        self._note(self.random.choice(actions))

    def _note(self, action: Callable[[], None]) -> None:
        self.done.append(action.__name__.strip("_"))
        action()

    # What users do.

    def _begin(self) -> None:
        kind = self.random.choice(("pod", "pod", "deployment", "statefulset"))
        self.made += 1
        name = f"{kind}-{self.made}"
        user = User(kind, name, self._new_claim(name), keeps=self.random.random() < 0.3)
        if kind == "statefulset":
            # Its claims are made of a template: they are new ones.
            user.claim = replace(user.claim, node="", source={})
        if kind != "pod":
            user.replicas = self.random.choice((1, 2))
        self.users.append(user)
        if kind != "statefulset" and user.claim not in self.kept:
            self._do(self._create, CLAIMS, user.claim.manifest())
        if user.claim in self.kept:
            self.kept.remove(user.claim)
        self._do(self._create, _PATHS[kind], self._manifest(user))

    def _new_claim(self, name: str) -> Claim:
        """A new claim, an old one that lies about, or a copy."""
        chance = self.random.random()
        if self.kept and chance < 0.3:
            return self.random.choice(self.kept)
        if self.snapshots and chance < 0.6:
            copy = self.random.choice(self.snapshots)
            group = {"apiGroup": "snapshot.storage.k8s.io"}
            return self._copy(name, copy, {"kind": "VolumeSnapshot", "name": copy.name, **group})
        sources = [user for user in self.users if user.kind != "statefulset"]
        source = self._bound(self.random.choice(sources).claim) if sources and chance < 0.7 else None
        if source is not None:
            copy = Copy("", source, self.ledger.acknowledged(source.name))
            return self._copy(name, copy, {"kind": "PersistentVolumeClaim", "name": source.name})
        mode = self.random.choice((BLOCK, FILES))
        return Claim(name, self.random.choice((SHARED, LOCAL)), mode, SIZES[mode])

    def _copy(self, name: str, copy: Copy, source: Document) -> Claim:
        self.ledger.copied(copy.tokens, name)
        return replace(copy.claim, name=name, source=source)

    def _end(self) -> None:
        """Delete pods, and their claims or not."""
        user = self.random.choice(self.users)
        self.users.remove(user)
        self._do(self._delete, user.object_path)
        if user.kind == "statefulset":
            return
        if user.keeps:
            self.kept.append(user.claim)
        else:
            self._do(self._delete, f"{CLAIMS}/{user.claim.name}")

    def _move(self) -> None:
        """Go on with a claim in another pod, where possible on another node."""
        user = self.random.choice(self.users)
        if user.kind == "deployment" and user.claim.storage_class == SHARED:
            node = self.random.choice(_NODES)
            selector = {"kubernetes.io/hostname": node}
            patch = {"spec": {"template": {"spec": {"nodeSelector": selector}}}}
            self._do(self._patch, user.object_path, patch)
        elif user.kind == "pod":
            self._do(self._delete, user.object_path)
            user.pods += 1
            self._do(self._create, _PATHS["pod"], self._manifest(user))

    def _scale(self) -> None:
        scalable = [user for user in self.users if user.kind != "pod"]
        if scalable:
            user = self.random.choice(scalable)
            user.replicas = self.random.choice((0, 1, 2))
            self._do(self._patch, user.object_path, {"spec": {"replicas": user.replicas}})

    def _grow(self) -> None:
        user = self.random.choice(self.users)
        if user.kind != "statefulset" and self._bound(user.claim) is not None:
            user.claim = replace(user.claim, mib=user.claim.mib + _GROWTH_MIB)
            storage = {"storage": f"{user.claim.mib}Mi"}
            patch = {"spec": {"resources": {"requests": storage}}}
            self._do(self._patch, f"{CLAIMS}/{user.claim.name}", patch)

    def _snapshot(self) -> None:
        user = self.random.choice(self.users)
        claim = self._bound(user.claim) if user.kind != "statefulset" else None
        if claim is not None and len(self.snapshots) < _SNAPSHOTS:
            self.made += 1
            name = f"snapshot-{self.made}"
            self.snapshots.append(Copy(name, claim, self.ledger.acknowledged(claim.name)))
            self._do(self._create, SNAPSHOTS, claim_users.snapshot(name, claim.name, claim.storage_class))

    def _forget(self) -> None:
        """Delete a snapshot, or a claim that lies about."""
        if self.kept and self.random.random() < 0.5:
            claim = self.kept.pop()
            self._do(self._delete, f"{CLAIMS}/{claim.name}")
        elif self.snapshots:
            copy = self.snapshots.pop(0)
            self._do(self._delete, f"{SNAPSHOTS}/{copy.name}")

    # How.

    def _manifest(self, user: User) -> Document:
        if user.kind == "pod":
            node = self.random.choice(_NODES) if user.claim.storage_class == SHARED else ""
            return claim_users.pod(user.object_path.rpartition("/")[2], user.claim, self.ledger, node)
        if user.kind == "deployment":
            return claim_users.deployment(user.name, user.claim, self.ledger, user.replicas)
        return claim_users.stateful_set(user.name, user.claim, self.ledger, user.replicas, keeps=user.keeps)

    def _bound(self, claim: Claim) -> Claim | None:
        """A claim that has a volume, with the node where that is; None for others, and without an answer."""
        try:
            document = self.cluster.find(f"{CLAIMS}/{claim.name}")
        except (*ANSWERS_LOST, ApiError):
            return None
        if document is None or document["status"]["phase"] != "Bound":
            return None
        node = document["metadata"].get("annotations", {}).get(_SELECTED, "")
        return replace(claim, node=node if claim.storage_class == LOCAL else "", source={})

    def _do(self, action: Callable[..., None], *arguments: object) -> None:
        self._todo.append(partial(action, *arguments))

    def _create(self, path: str, document: Document) -> None:
        if self.cluster.find(f"{path}/{document['metadata']['name']}") is None:
            self.cluster.request("POST", path, document)

    def _delete(self, path: str) -> None:
        if self.cluster.find(path) is not None:
            self.cluster.request("DELETE", path)

    def _patch(self, path: str, patch: Document) -> None:
        if self.cluster.find(path) is not None:
            self.cluster.request("PATCH", path, patch)
