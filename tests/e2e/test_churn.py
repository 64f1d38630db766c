"""Machines come and go while every process is killed at random: nothing doubles, wedges or stays behind.

``VIRTPLANE_KILLS`` says how many kills there are at least, and ``VIRTPLANE_MACHINES`` how many machines
(default: a few); ``VIRTPLANE_SEED`` repeats the choices of a run. Some guests boot. The others never run an
instruction, so that a small machine has time for many; they do not hear the power button either.
"""

from __future__ import annotations

import http.client
import os
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from tests.e2e.churn_deletions import DELETED_SECONDS, Deletions
from tests.e2e.clusters import CORE, KUBEVIRT, NAMESPACE, Cluster, Machine, manifest, restarts
from tests.e2e.failures import ApiError, NotInTime, NotThere
from tests.e2e.processes import Process, all_processes, kill
from tests.e2e.support import wait_for, wait_for_none
from tests.e2e.test_resilience import forget_crashes, wrong_statuses
from tests.e2e.test_traces import node_snapshot
from tests.support.clusters import clean_up
from tests.support.starvation import starvation_measured

from kindling.node.housekeeping import PERIOD_SECONDS, SHIM_PERIOD_ROUNDS
from kindling.node.runtime.shims import GRACE_SECONDS

pytestmark = [pytest.mark.host, pytest.mark.guest]

_DEFAULT_KILLS = 6
_SECONDS_PER_KILL = 20
_DEFAULT_MACHINES = 8
_SECONDS_PER_MACHINE = 10
_AT_ONCE = 5
"""Of these, one boots."""
_COMPONENTS = (
    "apiserver",
    "controllers",
    "node-node01",
    "containerd-node01",
    "virt-handler",
    "virt-operator",
)
_GUEST_PARTS = ("qemu", "libvirtd", "virt-launcher", "containerd-shim")
_IN_PODS = ("virt-handler", "virt-operator")
_KILLS = int(os.environ.get("VIRTPLANE_KILLS", _DEFAULT_KILLS))
_MACHINES = int(os.environ.get("VIRTPLANE_MACHINES", _DEFAULT_MACHINES))
_CHURN = "churn-"
_BOOTS, _STANDS = f"{_CHURN}boots-", f"{_CHURN}stands-"
_ACTIONS_PER_MACHINE = 3
_SUBRESOURCES = f"/apis/subresources.kubevirt.io/v1/namespaces/{NAMESPACE}/virtualmachines"
_POD = re.compile(r"pods?/?([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")


@dataclass
class Churn:
    """What users ask for and what is killed, chosen by `random`."""

    cluster: Cluster
    random: random.Random
    deletions: Deletions
    machines: dict[str, Machine] = field(default_factory=dict)
    killed: Counter[str] = field(default_factory=Counter)
    made: int = 0

    def act(self) -> None:
        """Do what a user might; the API server may be down just now, as for any user."""
        try:
            self._act()
        except (OSError, http.client.HTTPException, ApiError):
            time.sleep(0.2)  # as a user would try again

    def _act(self) -> None:
        if len(self.machines) < _AT_ONCE:
            self._make()
            return
        name = self.random.choice(sorted(self.machines))
        action = self.random.choice(("delete", "delete", "stop", "start", "restart"))
        if action == "delete":
            if self.cluster.find(self.machines[name]._vm_path) is not None:
                self.machines[name].delete()
                self.deletions.begin(name)
            self.machines.pop(name)
            return
        # Refused where the machine is in no state for it.
        self.cluster.request("PUT", f"{_SUBRESOURCES}/{name}/{action}", {})

    def _make(self) -> None:
        self.made += 1
        boots = not any(name.startswith(_BOOTS) for name in self.machines)
        name = f"{_BOOTS if boots else _STANDS}{self.made}"
        # Remembered before the answer, which may be lost.
        self.machines[name] = Machine(self.cluster, name)
        wanted = manifest(name, grace=1)
        if not boots:
            wanted["spec"]["template"]["spec"]["startStrategy"] = "Paused"
        self.cluster.create(wanted)

    def maybe_kill(self) -> None:
        """Kill, as often as it takes for the kills to be spread over the machines' lives."""
        if self.random.random() < _KILLS / (_MACHINES * _ACTIONS_PER_MACHINE):
            self.kill_one()

    def kill_one(self) -> None:
        """Kill -9 one process of the cluster: a component, or a part of a guest."""
        kind = self.random.choice((*_COMPONENTS, *_GUEST_PARTS))
        victims = sorted(self._victims(kind))
        if victims:
            self._kill(kind, self.random.choice(victims))
            self.killed[kind] += 1

    def _kill(self, kind: str, victim: int) -> None:
        if kind in _IN_PODS:
            try:
                pod = self.cluster.component_pod(kind)
                if restarts(pod):
                    # Another crash of this one would have it wait for minutes, and nothing happen meanwhile.
                    path = f"{CORE}/namespaces/kubevirt/pods/{pod['metadata']['name']}"
                    self.cluster.request("DELETE", f"{path}?gracePeriodSeconds=0")
                    return
            except (OSError, http.client.HTTPException, ApiError, NotThere):
                pass  # the API server was killed before
        kill(victim)

    def _victims(self, kind: str) -> list[int]:
        if kind in _COMPONENTS:
            try:
                return [self.cluster.component(kind)]
            except NotThere:
                return []  # killed before, and not back yet
        return [process.pid for process in self.cluster.processes() if _is_part(process, kind)]


def _is_part(process: Process, kind: str) -> bool:
    if kind == "qemu":
        return f"guest={NAMESPACE}_churn-" in process.command
    if kind == "virt-launcher":
        return "virt-launcher" in process.command and "--name churn-" in process.command
    return kind in process.command.split(" ", 1)[0]


def guests_of_machines() -> Counter[str]:
    """How many QEMU processes each machine has."""
    mark = f"guest={NAMESPACE}_churn-"
    found = [process.command for process in all_processes() if mark in process.command]
    return Counter(command.split("guest=", 1)[1].split(",", 1)[0] for command in found)


def left_behind(cluster: Cluster) -> list[str]:
    """What the node has of pods that do not exist, or more often than pods do.

    The product's own pods were replaced meanwhile, so what was there before is no measure.
    """
    pods = cluster.items(f"{CORE}/pods")
    uids = {pod["metadata"]["uid"] for pod in pods}
    found = node_snapshot(cluster)
    places = [*found["cgroups"], *found["files"], *found["mounts"]]
    strangers = [place for place in places if (pod := _POD.search(place)) and pod[1] not in uids]
    networked = sum(not pod["spec"].get("hostNetwork") for pod in pods)
    counts = {
        "sandboxes": (len(found["shims"]), len(pods)),
        "namespaces": (sum(name.startswith("cni-") for name in found["namespaces"]), networked),
        "links": (sum(name.strip().startswith("veth") for name in found["links"]), networked),
    }
    strangers += [command for command in found["processes"] if _CHURN in command]
    strangers += [*_objects(cluster), *_held(cluster)]
    return strangers + [f"{kind}: {count}" for kind, count in counts.items() if count[0] > count[1]]


def _objects(cluster: Cluster) -> list[str]:
    """What the API has of machines, whose names all begin alike."""
    inside = f"namespaces/{NAMESPACE}"
    kinds = ("pods", "secrets", "configmaps", "persistentvolumeclaims")
    paths = [f"{CORE}/{inside}/{kind}" for kind in kinds]
    paths += [f"{KUBEVIRT}/{inside}/{kind}" for kind in ("virtualmachines", "virtualmachineinstances")]
    paths += [f"/apis/apps/v1/{inside}/controllerrevisions", f"/apis/policy/v1/{inside}/poddisruptionbudgets"]
    names = [f"{path}/{item['metadata']['name']}" for path in paths for item in cluster.items(path)]
    return [name for name in names if _CHURN in name]


def _held(cluster: Cluster) -> list[str]:
    """What virt-handler still has open of launchers: their processes and networks."""
    folder = Path(f"/proc/{cluster.component('virt-handler')}/fd")
    links = [str(each.readlink()) for each in folder.iterdir() if each.is_symlink()]
    return [f"virt-handler: {link}" for link in links if "pidfd" in link or link.startswith("net:")]


_LOST_SHIM_SECONDS = GRACE_SECONDS + SHIM_PERIOD_ROUNDS * PERIOD_SECONDS + 30


@pytest.fixture
def churn(cluster: Cluster) -> Iterator[Churn]:
    """What this run chooses, said when it fails."""
    seed = int(os.environ.get("VIRTPLANE_SEED") or random.SystemRandom().randrange(10**6))
    made = Churn(cluster, random.Random(seed), Deletions(cluster))
    sys.stdout.write(f"VIRTPLANE_SEED={seed}\n")
    try:
        yield made
    finally:
        clean_up([Machine(cluster, name) for name in machines_of(cluster)])


def machines_of(cluster: Cluster) -> list[str]:
    """The names of the machines that there are."""
    names = [
        vm["metadata"]["name"] for vm in cluster.items(f"{KUBEVIRT}/namespaces/{NAMESPACE}/virtualmachines")
    ]
    return [name for name in names if name.startswith("churn-")]


@pytest.mark.timeout(300 + _KILLS * _SECONDS_PER_KILL + _MACHINES * _SECONDS_PER_MACHINE)
def test_nothing_doubles_wedges_or_stays_when_everything_is_killed_at_random(
    cluster: Cluster, churn: Churn, record_property: Callable[[str, object], None]
) -> None:
    forget_crashes(cluster)
    deletions = churn.deletions
    with starvation_measured() as starvation:
        while sum(churn.killed.values()) < _KILLS or churn.made < _MACHINES:
            churn.act()
            churn.maybe_kill()
            doubled = {name for name, count in guests_of_machines().items() if count > 1}
            assert not doubled, f"two guests for {sorted(doubled)} after {dict(churn.killed)}"
            deletions.look(DELETED_SECONDS * starvation.factor)
            time.sleep(churn.random.uniform(0.0, 1.5))  # what is killed next may be anywhere in its recovery
    record_property("killed", dict(churn.killed))
    # From here on nothing is killed: all must become true and go away by itself.
    wait_for("the API answers", lambda: cluster.items(f"{CORE}/nodes"), 60)
    forget_crashes(cluster)
    wait_for_none("every status is true", lambda: wrong_statuses(cluster, []), 60)
    for name in machines_of(cluster):
        Machine(cluster, name).delete()
        deletions.begin(name)
    ended = partial(deletions.all_ended, DELETED_SECONDS * starvation.factor)
    wait_for("every deletion ends", ended, DELETED_SECONDS)
    record_property("machines", churn.made)
    record_property("starvation", round(starvation.factor, 1))
    record_property("deletions", sorted(round(seconds, 1) for seconds in deletions.took))
    record_property("slow deletions", deletions.explained)
    assert not deletions.unexplained, f"nobody says why these are not gone: {deletions.unexplained}"

    try:
        # A shim that containerd lost when it was killed is ended after a minute, at the next look.
        wait_for("nothing is left", lambda: not left_behind(cluster), _LOST_SHIM_SECONDS)
    except NotInTime as error:
        raise NotInTime(f"left behind after {dict(churn.killed)}: {left_behind(cluster)}") from error
    machine = cluster.create(manifest("churn-after", grace=1))
    try:
        machine.wait_running(60)
    finally:
        clean_up([machine])
