"""Machines come and go while every process is killed at random: nothing doubles, wedges or stays behind.

``VIRTPLANE_KILLS`` says how many kills (default: a few); ``VIRTPLANE_SEED`` repeats the choices of a run.
"""

from __future__ import annotations

import os
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from tests.e2e.clusters import CORE, KUBEVIRT, NAMESPACE, Cluster, Machine, manifest
from tests.e2e.commands import attempt, program
from tests.e2e.failures import ApiError, NotInTime, NotThere
from tests.e2e.processes import Process, all_processes, kill
from tests.e2e.support import wait_for
from tests.e2e.test_resilience import forget_crashes, wrong_statuses
from tests.e2e.test_traces import node_snapshot
from tests.support.clusters import clean_up

from kindling.node.housekeeping import PERIOD_SECONDS, SHIM_PERIOD_ROUNDS
from kindling.node.runtime.shims import GRACE_SECONDS

pytestmark = [pytest.mark.host, pytest.mark.guest]

_DEFAULT_KILLS = 12
_SECONDS_PER_KILL = 20
_MACHINES = 3
_COMPONENTS = (
    "apiserver",
    "controllers",
    "node-node01",
    "containerd-node01",
    "virt-handler",
    "virt-operator",
)
_GUEST_PARTS = ("qemu", "libvirtd", "virt-launcher", "containerd-shim")
_KILLS = int(os.environ.get("VIRTPLANE_KILLS", _DEFAULT_KILLS))
_DELETED_SECONDS = 90.0
_POD = re.compile(r"pods?/?([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")


@dataclass
class Churn:
    """What users ask for and what is killed, chosen by `random`."""

    cluster: Cluster
    random: random.Random
    machines: dict[str, Machine] = field(default_factory=dict)
    killed: Counter[str] = field(default_factory=Counter)
    made: int = 0

    def act(self) -> None:
        """Do what a user might; the API server may be down just now, as for any user."""
        try:
            self._act()
        except (OSError, ApiError):
            time.sleep(0.2)  # as a user would try again

    def _act(self) -> None:
        if len(self.machines) < _MACHINES:
            self.made += 1
            name = f"churn-{self.made}"
            # Remembered before the answer, which may be lost.
            self.machines[name] = Machine(self.cluster, name)
            self.cluster.create(manifest(name, grace=1))
            return
        name = self.random.choice(sorted(self.machines))
        action = self.random.choice(("delete", "stop", "start", "restart", "restart"))
        if action == "delete":
            if self.cluster.find(self.machines[name]._vm_path) is not None:
                self.machines[name].delete()
            self.machines.pop(name)
            return
        # Refused where the machine is in no state for it.
        attempt(program("virtctl"), action, name, env=self.cluster.environment)

    def kill_one(self) -> None:
        """Kill -9 one process of the cluster: a component, or a part of a guest."""
        kind = self.random.choice((*_COMPONENTS, *_GUEST_PARTS))
        victims = sorted(self._victims(kind))
        if victims:
            kill(self.random.choice(victims))
            self.killed[kind] += 1

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
    guests = [command for command in found["processes"] if "churn-" in command]
    return strangers + guests + [f"{kind}: {count}" for kind, count in counts.items() if count[0] > count[1]]


_LOST_SHIM_SECONDS = GRACE_SECONDS + SHIM_PERIOD_ROUNDS * PERIOD_SECONDS + 30


@pytest.fixture
def churn(cluster: Cluster) -> Iterator[Churn]:
    """What this run chooses, said when it fails."""
    seed = int(os.environ.get("VIRTPLANE_SEED") or random.SystemRandom().randrange(10**6))
    made = Churn(cluster, random.Random(seed))
    sys.stdout.write(f"VIRTPLANE_SEED={seed}\n")
    try:
        yield made
    finally:
        clean_up([Machine(cluster, f"churn-{number + 1}") for number in range(made.made)])


@pytest.mark.timeout(300 + _KILLS * _SECONDS_PER_KILL)
def test_nothing_doubles_wedges_or_stays_when_everything_is_killed_at_random(
    cluster: Cluster, churn: Churn, record_property: Callable[[str, object], None]
) -> None:
    forget_crashes(cluster)
    while sum(churn.killed.values()) < _KILLS:
        churn.act()
        churn.kill_one()
        doubled = {name for name, count in guests_of_machines().items() if count > 1}
        assert not doubled, f"two guests for {sorted(doubled)} after {dict(churn.killed)}"
        time.sleep(churn.random.uniform(0.0, 1.5))  # what is killed next may be anywhere in its recovery
    record_property("killed", dict(churn.killed))
    # From here on nothing is killed: all must become true and go away by itself.
    wait_for("the API answers", lambda: cluster.items(f"{CORE}/nodes"), 60)
    forget_crashes(cluster)
    wait_for("every status is true", lambda: not wrong_statuses(cluster, []), 60)
    for vm in cluster.items(f"{KUBEVIRT}/namespaces/{NAMESPACE}/virtualmachines"):
        if vm["metadata"]["name"].startswith("churn-"):
            Machine(cluster, vm["metadata"]["name"]).delete()
    for number in range(churn.made):
        Machine(cluster, f"churn-{number + 1}").wait_gone(_DELETED_SECONDS)

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
