"""Enforces NetworkPolicies on one node: watches policies, pods and namespaces, and keeps the rules loaded.

A pod gets its rules before its first container starts (`protect`). Rules of an agent that ended hold until
its successor knows all pods and policies, and replaces them in one transaction.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kindling.network import policies, policy_rules
from kindling.network.nftables import Keeper, RulesRefused
from kindling.network.policies import Labels, Matcher, Member, World
from kindling.network.policy_objects import Namespace, NetworkPolicy, Pod
from kindling.network.policy_readings import Readings
from kindling.network.tables import Table
from kubecore.client import Client
from kubecore.json import JsonObject
from kubecore.objects import structs
from kubecore.resources import NAMESPACES, NETWORK_POLICIES, PODS
from kubecore.runtime import Informer

_log = logging.getLogger(__name__)

_SETTLE_SECONDS = 0.02
"""Changes that come together are loaded together."""
_RETRY_SECONDS = 2.0
_KNOWN_SECONDS = 20.0
"""How long a pod's start waits until policies are known."""


class NotProtected(Exception):
    """The rules for a pod are not loaded."""


@dataclass(slots=True)
class _Attached:
    """A pod with a link on this node. Its last known state outlives its object; None: there is no object."""

    addresses: tuple[str, ...]
    pod: Pod | None


@dataclass(frozen=True, slots=True)
class _Seen:
    """Policies (`unfit`: documents that do not decode), pods, and labels of namespaces at one moment."""

    policies: Sequence[NetworkPolicy]
    unfit: Sequence[Mapping[str, Any]]
    members: Sequence[Member]
    labels: Mapping[str, Labels]
    node: policy_rules.Node


class PolicyEnforcer:
    """The policies of one node. `resolver` are the addresses of the cluster's resolver; rules are loaded in
    the network namespace at `namespace`, or here.
    """

    def __init__(self, client: Client, resolver: Sequence[str], namespace: Path | None = None) -> None:
        self._policies = Informer(client, NETWORK_POLICIES, struct=NetworkPolicy)
        self._namespaces = Informer(client, NAMESPACES, struct=Namespace)
        self._pods = Informer(client, PODS, struct=Pod)
        self._resolver = policy_rules.resolver(resolver)
        self._keeper = Keeper(namespace)
        self._matcher = Matcher()
        self._readings = Readings()
        self._labels: dict[str, Labels] = {}
        self._members: dict[str, Member] = {}
        self._attached: dict[str, _Attached] = {}
        self._known = asyncio.Event()
        self._wake = asyncio.Event()
        self._lock = asyncio.Lock()
        self._policies.add_handler(lambda *_event: self._wake.set())
        self._policies.add_unfit_handler(lambda _key: self._wake.set())
        self._namespaces.add_handler(self._namespace_changed)
        self._pods.add_handler(self._pod_changed)

    def attach(self, uid: str, addresses: Sequence[str], pod: Pod | None = None) -> None:
        """Note the addresses of a pod of this node; rules follow. A pod of which nothing is known, then or
        later, is cut off.
        """
        before = self._attached.pop(uid, None)
        if pod is None:
            found = (item for item in self._pods.list() if item.metadata.uid == uid)
            pod = (before.pod if before is not None else None) or next(found, None)
        self._attached[uid] = _Attached(tuple(addresses), pod)
        self._wake.set()

    async def protect(self, document: JsonObject, addresses: Sequence[str]) -> None:
        """Load the rules of a pod whose containers do not run yet. Raises NotProtected."""
        try:
            pod = structs.decode(Pod, document)
            self.attach(pod.metadata.uid, addresses, pod)
            async with asyncio.timeout(_KNOWN_SECONDS):
                await self._known.wait()
            await self._load()
        except structs.UnfitDocument as error:
            raise NotProtected(str(error)) from error
        except TimeoutError as error:
            raise NotProtected("network policies are not known yet; is the API server reachable?") from error
        except RulesRefused as error:
            raise NotProtected(f"nft refused the rules of network policies: {error}") from error

    def forget(self, uid: str) -> None:
        """Forget a pod that is gone."""
        if self._attached.pop(uid, None) is not None:
            self._wake.set()

    async def run(self) -> None:
        """Work until cancelled. To be called when all running pods are attached."""
        async with asyncio.TaskGroup() as group:
            for informer in (self._policies, self._namespaces, self._pods):
                group.create_task(informer.run(), name=f"policies-{informer.resource.plural}")
            for informer in (self._policies, self._namespaces, self._pods):
                await informer.wait_synced()
            self._known.set()
            while True:
                self._wake.clear()
                delay = None
                try:
                    await self._load()
                except RulesRefused as error:
                    text = "loading the rules of network policies failed, trying again in %g s: %s"
                    _log.error(text, _RETRY_SECONDS, error)
                    delay = _RETRY_SECONDS
                try:
                    await asyncio.wait_for(self._wake.wait(), delay)
                except TimeoutError:
                    _log.info("loading the rules of network policies again after a failure")
                await asyncio.sleep(_SETTLE_SECONDS)

    async def _load(self) -> None:
        async with self._lock:
            seen = self._seen()
            # In a thread: hundreds of policies and pods take time, and probes of pods do not wait for it.
            await self._keeper.load(await asyncio.to_thread(self._table, seen))

    def _seen(self) -> _Seen:
        """What is known now; the rules are made of it while more may come."""
        own, cut_off = self._own_pods()
        # Pods of this node count with the addresses that their links have, also before their status says so.
        members = self._members | {item.uid: item for item in own if self._is_peer(item.uid)}
        unfit = [error.document for error in self._policies.unfit.values()]
        node = policy_rules.Node(own, cut_off, self._resolver)
        return _Seen(list(self._policies.list()), unfit, list(members.values()), dict(self._labels), node)

    def _table(self, seen: _Seen) -> Table:
        by_namespace: dict[str, list[Member]] = {}
        for item in seen.members:
            by_namespace.setdefault(item.namespace, []).append(item)
        world = World(by_namespace, seen.labels, self._matcher)
        return policy_rules.table(world, self._readings.of(seen.policies, seen.unfit), seen.node)

    def _own_pods(self) -> tuple[list[Member], list[str]]:
        """This node's pods, and the addresses of those of which nothing is known.

        Whoever was attached last has an address: pods that ended may still be here.
        """
        owners = {address: uid for uid, item in self._attached.items() for address in item.addresses}
        own: list[Member] = []
        cut_off: list[str] = []
        for uid, item in self._attached.items():
            addresses = tuple(each for each in item.addresses if owners[each] == uid)
            if item.pod is None:
                cut_off += addresses
            elif addresses:
                own.append(policies.member(item.pod, addresses))
        return own, cut_off

    def _is_peer(self, uid: str) -> bool:
        pod = self._attached[uid].pod
        return pod is not None and policies.has_network(pod)

    def _namespace_changed(self, event: str, _old: Namespace | None, new: Namespace) -> None:
        name, labels = new.metadata.name, frozenset(new.metadata.labels.items())
        if event == "DELETED":
            self._labels.pop(name, None)
        elif self._labels.get(name) == labels:
            return
        else:
            self._labels[name] = labels
        self._wake.set()

    def _pod_changed(self, event: str, _old: Pod | None, new: Pod) -> None:
        uid = new.metadata.uid
        attached = self._attached.get(uid)
        if attached is not None:
            if attached.pod is None or policies.member(attached.pod, ("",)) != policies.member(new, ("",)):
                self._wake.set()
            attached.pod = new
        found = None if event == "DELETED" or not policies.has_network(new) else policies.member(new)
        before = self._members.pop(uid, None)
        if found is not None and found.addresses:
            self._members[uid] = found
        if self._members.get(uid) != before:
            self._wake.set()
