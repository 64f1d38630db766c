"""What a node says of its resources."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest
from tests.support.apiserver import running_server

from kindling.node.options import NodeOptions, OptionProblem, parse
from kindling.node.registration import (
    CHECK_SECONDS,
    STATUS_SECONDS,
    Machine,
    NodeRegistration,
    NodeSettings,
    advertised,
    machine_resources,
    status_addresses,
)
from kindling.node.runtime.containerd import Containerd
from kubecore.json import JsonObject, get_list
from kubecore.objects import meta
from kubecore.objects.quantity import Quantity
from kubecore.resources import NODES
from kubecore.testing import MemoryApi


def test_resources_that_administrators_advertise_are_kept() -> None:
    capacity = {"cpu": "2", "example.com/dongle": "4", "example.com/thing": "1", "node.kubernetes.io/x": "1"}
    node = {"status": {"capacity": capacity}}
    assert advertised(node, {"example.com/thing": (2, 2)}) == {"example.com/dongle": "4"}


MIB = 1 << 20
MACHINE = Machine(cpus=4, memory=1000 * MIB, disk=10_000 * MIB)


def test_all_that_is_advertised_can_be_allocated_and_of_devices_the_healthy_ones() -> None:
    capacity, allocatable = machine_resources(
        MACHINE, NodeOptions(), {"example.com/thing": (2, 1)}, {"example.com/dongle": "4"}
    )
    assert (capacity["example.com/dongle"], allocatable["example.com/dongle"]) == ("4", "4")
    assert (capacity["example.com/thing"], allocatable["example.com/thing"]) == ("2", "1")


def test_what_must_stay_free_lest_pods_are_evicted_cannot_be_allocated() -> None:
    capacity, allocatable = machine_resources(
        MACHINE, parse(["eviction-hard=memory.available<100Mi,nodefs.available<10%"]), {}, {}
    )
    assert (capacity["memory"], allocatable["memory"]) == ("1000Mi", "900Mi")
    assert (capacity["ephemeral-storage"], allocatable["ephemeral-storage"]) == ("10000Mi", "9000Mi")
    assert (capacity["cpu"], allocatable["cpu"], allocatable["pods"]) == ("4", "4", "110")


def test_what_is_reserved_cannot_be_allocated() -> None:
    options = parse(
        ["system-reserved=cpu=500m,memory=100Mi", "kube-reserved=memory=1Gi", "eviction-hard=", "max-pods=5"]
    )
    _, allocatable = machine_resources(MACHINE, options, {}, {})
    assert (allocatable["cpu"], allocatable["memory"], allocatable["pods"]) == ("3500m", "0", "5")


def test_huge_pages_are_resources_and_no_memory() -> None:
    machine = Machine(4, 1000 * MIB, 1000 * MIB, {2 * MIB: 200 * MIB, 1024 * MIB: 0})
    capacity, allocatable = machine_resources(machine, NodeOptions(), {}, {})
    assert (capacity["hugepages-2Mi"], allocatable["hugepages-2Mi"]) == ("200Mi", "200Mi")
    assert capacity["hugepages-1Gi"] == "0"
    assert (capacity["memory"], allocatable["memory"]) == ("1000Mi", "700Mi")


@pytest.mark.parametrize(
    "option",
    [
        "max-pods",
        "max-pods=0",
        "no-such=1",
        "system-reserved=gpu=1",
        "system-reserved=cpu=x",
        "eviction-hard=memory.available",
        "eviction-hard=memory.free<1Gi",
        "eviction-hard=nodefs.available<200%",
        "image-gc-high-threshold=80",
        "cpu-manager-policy=dynamic",
        "reserved-cpus=3-1",
    ],
)
def test_wrong_options_are_refused(option: str) -> None:
    with pytest.raises(OptionProblem):
        parse([option])


def test_options_are_read() -> None:
    options = parse(["eviction-hard=memory.available<1Gi,pid.available<10%", "reserved-cpus=0-1,3"])
    assert set(options.eviction_hard) == {"memory.available", "pid.available"}
    assert options.reserved_cpus == {0, 1, 3} and options.reserved("cpu") == Quantity.of(3)


async def test_a_node_reports_an_address_of_each_family_as_often_as_it_likes(tmp_path: Path) -> None:
    settings = NodeSettings("n", ("10.64.0.11", "fd6b::b"), ("10.64.1.0/24", "fd6b:0:0:1::/64"), 10250)
    status = {"status": {"addresses": status_addresses(settings)}}
    async with running_server(tmp_path) as server, server.client() as client:
        await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
        for _ in range(2):
            node = await client.patch(NODES, "n", status, type="strategic", subresource="status")
            assert get_list(node, "status", "addresses") == [
                {"type": "InternalIP", "address": "10.64.0.11"},
                {"type": "InternalIP", "address": "fd6b::b"},
                {"type": "Hostname", "address": "n"},
            ]


class IdleRuntime:
    """A container runtime that is ready and has no images."""

    async def version(self) -> tuple[str, str]:
        return "containerd", "1.6"

    async def list_images(self) -> list[object]:
        return []

    async def not_ready_reasons(self) -> list[str]:
        return []


@pytest.mark.looptime
async def test_a_node_that_was_called_lost_says_that_it_is_ready_as_soon_as_it_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(NodeRegistration, "_machine", staticmethod(lambda: MACHINE))
    api, settings = MemoryApi(), NodeSettings("n", ("10.64.0.11",), ("10.64.1.0/24",), 10250)
    registered = asyncio.Event()

    def node() -> JsonObject:
        found = api.get(NODES, "n")
        assert found is not None
        return found

    def states() -> dict[str, str]:
        return {item["type"]: item["status"] for item in get_list(node(), "status", "conditions")}

    async with api.client() as client:
        runtime = cast(Containerd, IdleRuntime())
        registration = NodeRegistration(client, runtime, settings, dict, registered.set, tuple)
        task = asyncio.create_task(registration.run())
        await registered.wait()
        wanted = states()
        assert wanted["Ready"] == "True"
        await asyncio.sleep(2 * CHECK_SECONDS)
        written = meta.resource_version(node())
        await asyncio.sleep(STATUS_SECONDS - 3 * CHECK_SECONDS)
        assert meta.resource_version(node()) == written, "nothing has changed"
        # As the controllers do once they have not heard of it for a while.
        lost = node()
        for item in get_list(lost, "status", "conditions"):
            item["status"] = "Unknown"
        api.put(NODES, lost)
        assert set(states().values()) == {"Unknown"}
        await asyncio.sleep(CHECK_SECONDS + 1)
        assert states() == wanted
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
