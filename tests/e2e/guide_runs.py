"""Machines of users' guides that run: what keeps them from it at first, and what is seen of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.e2e.clusters import CORE, KUBEVIRT, NAMESPACE, Cluster, Machine, devices
from tests.e2e.failures import Document
from tests.e2e.support import wait_for

SECONDS = 90
_INSTALLATION = f"{KUBEVIRT}/namespaces/kubevirt/kubevirts/kubevirt"
_FRIEND = "friend"
_PODS = f"{CORE}/namespaces/{NAMESPACE}/pods"


@dataclass(frozen=True)
class Seen:
    """What became of a machine that ran: its objects, its process, and its cloud-init disk."""

    vm: Document
    instance: Document
    pod: Document
    command: list[str]
    cloud_init: bytes

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.instance["metadata"]["name"])

    @property
    def devices(self) -> list[Document]:
        """QEMU's devices."""
        return devices(self.command)

    def device(self, driver: str) -> Document:
        """QEMU's first device of a driver."""
        found = [each for each in self.devices if each["driver"] == driver]
        assert found, f"{self.name}: no {driver} among {self.devices}"
        return found[0]

    def option(self, name: str) -> str:
        """What follows an option of QEMU's command line."""
        return self.command[self.command.index(name) + 1]

    def annotation(self, name: str) -> str:
        """An annotation of the instance, of KubeVirt's."""
        return str(self.instance["metadata"]["annotations"][f"kubevirt.io/{name}"])

    @property
    def compute(self) -> Document:
        """The guest's container."""
        found: list[Document] = self.pod["spec"]["containers"]
        return next(each for each in found if each["name"] == "compute")


@dataclass(frozen=True)
class Hindrance:
    """Why a machine cannot run at first, as it is told, and what an administrator does about it."""

    told: str
    remove: Callable[[Cluster, Machine], object]


def node_of(cluster: Cluster) -> str:
    """The path of the only node."""
    return f"{CORE}/nodes/{cluster.items(f'{CORE}/nodes')[0]['metadata']['name']}"


def _labelled(labels: Mapping[str, str | None]) -> Callable[[Cluster, Machine], object]:
    return lambda cluster, machine: _label(cluster, labels)


def _label(cluster: Cluster, labels: Mapping[str, str | None]) -> None:
    cluster.request("PATCH", node_of(cluster), {"metadata": {"labels": labels}})


def _beside_its_friend(cluster: Cluster, machine: Machine) -> None:
    """A pod with the label that the machine wants to be near to."""
    labels = {"example-key-1": "example-value-1"}
    only = {"name": "main", "image": "kindling.local/busybox:1", "command": ["sleep", "600"]}
    spec = {"containers": [only], "terminationGracePeriodSeconds": 0}
    cluster.request("POST", _PODS, {"metadata": {"name": _FRIEND, "labels": labels}, "spec": spec})


def _offer_all_models(cluster: Cluster, machine: Machine) -> None:
    _call_obsolete(cluster, {"486": True})


def _call_obsolete(cluster: Cluster, models: dict[str, bool] | None) -> None:
    change = {"spec": {"configuration": {"obsoleteCPUModels": models}}}
    cluster.request("PATCH", _INSTALLATION, change)


def _schedule(cluster: Cluster, machine: Machine) -> None:
    """What a scheduler does."""
    name = machine.pod()["metadata"]["name"]
    target = {"kind": "Node", "name": node_of(cluster).rpartition("/")[2]}
    cluster.request("POST", f"{_PODS}/{name}/binding", {"metadata": {"name": name}, "target": target})


def remove_traces(cluster: Cluster) -> None:
    """Make node and configuration as they were before hindrances were removed."""
    _label(cluster, dict.fromkeys([*_SELECTED, *_PREFERRED]))
    _call_obsolete(cluster, None)
    if cluster.find(f"{_PODS}/{_FRIEND}") is not None:
        cluster.request("DELETE", f"{_PODS}/{_FRIEND}")


_NO_NODE = "didn't match Pod's node affinity/selector"
_SELECTED = {"example-key-1": "example-value-1", "example-key-2": "example-value-2"}
_PREFERRED = {"example.io/example-key": "example-value-2"}
_HINDRANCES = {
    "example-vm-node-selector": Hindrance(_NO_NODE, _labelled(_SELECTED)),
    "example-vm-node-affinity": Hindrance(_NO_NODE, _labelled(_PREFERRED)),
    "example-vm-pod-affinity": Hindrance("didn't match pod affinity rules", _beside_its_friend),
    # A model of the list of obsolete ones.
    "myvm-2": Hindrance(_NO_NODE, _offer_all_models),
    "vm-fedora": Hindrance("", _schedule),
}


def is_hindered(cluster: Cluster, machine: Machine, told: str) -> bool:
    """Whether the machine's pod waits and that is told as the reason; without `told`, that it waits."""
    pod = machine.pod()
    events = cluster.items(f"{CORE}/namespaces/{NAMESPACE}/events")
    messages = [
        each.get("message", "")
        for each in events
        if each["involvedObject"].get("uid") == pod["metadata"]["uid"]
    ]
    return pod["status"]["phase"] == "Pending" and (not told or any(told in each for each in messages))


def run(cluster: Cluster, wanted: Document) -> Seen:
    """Create a machine, start it, and look at it once it runs."""
    machine = Machine(cluster, wanted["metadata"]["name"])
    collection = collection_of(wanted)
    cluster.request("POST", f"{collection}?fieldValidation=Strict", wanted)
    try:
        outer = wanted["spec"]
        if outer.get("running") is False:
            cluster.request("PATCH", f"{collection}/{machine.name}", {"spec": {"running": True}})
        elif outer.get("runStrategy") == "Halted":
            cluster.request("PATCH", f"{collection}/{machine.name}", {"spec": {"runStrategy": "Always"}})
        hindrance = _HINDRANCES.get(machine.name)
        if hindrance is not None:
            waits = partial(is_hindered, cluster, machine, hindrance.told)
            wait_for(f"{machine.name} waits for {hindrance.told}", waits, SECONDS)
            hindrance.remove(cluster, machine)
        wait_for(f"{machine.name} runs", partial(runs, machine), SECONDS)
        return _look(machine, wanted)
    finally:
        cluster.request("DELETE", f"{collection}/{machine.name}")


def collection_of(document: Document) -> str:
    """Where a machine or an instance is created."""
    return f"/apis/{document['apiVersion']}/namespaces/{NAMESPACE}/{document['kind'].lower()}s"


def runs(machine: Machine) -> bool:
    """Whether the guest runs; it must not have failed."""
    phase = machine.phase()
    assert phase != "Failed", machine.instance()
    return phase == "Running"


def _look(machine: Machine, wanted: Document) -> Seen:
    instance = machine.instance()
    assert instance is not None
    process = Path("/proc", str(machine.qemu()))
    folder = process / "root/var/run/kubevirt-ephemeral-disks/cloud-init-data" / NAMESPACE / machine.name
    disk = folder / "noCloud.iso"
    return Seen(
        vm=machine.vm() if wanted["kind"] == "VirtualMachine" else {},
        instance=instance,
        pod=machine.pod(),
        command=(process / "cmdline").read_bytes().decode().split("\0"),
        cloud_init=disk.read_bytes() if disk.exists() else b"",
    )
