"""Full storage pools, as administrators are told of them."""

from __future__ import annotations

import pytest
from tests.support.waiting import until
from tests.unit.virtplane.operators.hostpath.running_operator import NAMESPACE, POOLS, Operator, running

from kubecore import resources
from kubecore.json import JsonObject
from virtplane.operators.hostpath import room, status

CLASSES: list[JsonObject] = [
    {"metadata": {"name": f"class-{pool}"}, "parameters": {"storagePool": pool}} for pool in ("a", "b")
]


def capacity(pool: str, left: str, node: str = "n1", whole: str = "100Gi") -> JsonObject:
    return {
        "metadata": {
            "name": f"{pool}-{node}",
            "namespace": NAMESPACE,
            "labels": {"csi.storage.k8s.io/drivername": "kubevirt.io.hostpath-provisioner"},
        },
        "storageClassName": f"class-{pool}",
        "capacity": left,
        "maximumVolumeSize": whole,
        "nodeTopology": {"matchLabels": {"topology.hostpath.csi/node": node}},
    }


@pytest.mark.parametrize(("left", "is_full"), [("2Gi", False), ("2047Mi", True), ("0", True)])
def test_a_pool_is_full_with_less_than_two_percent(left: str, is_full: bool) -> None:
    assert room.is_full(capacity("a", left)) == is_full


def test_a_driver_that_does_not_say_how_large_the_pool_is_has_no_full_pools() -> None:
    assert not room.is_full({"capacity": "0", "storageClassName": "class-a"})


def test_pools_are_named_once_or_with_the_nodes_where_they_are_full() -> None:
    found = [capacity(pool, "1Mi", node) for pool in ("a", "b") for node in ("n1", "n2")]
    found += [capacity("b", "50Gi", "n3"), capacity("unknown", "0")]
    assert room.full_pools(found, CLASSES, ["a"]) == ["a", "b on n1", "b on n2"]


def test_the_condition_keeps_its_time_and_goes_with_its_cause() -> None:
    first = status.with_full_pools({}, "a is full", "t1")
    later = status.with_full_pools(first, "a and b are full", "t2")
    (condition,) = later["conditions"]
    assert (condition["message"], condition["lastTransitionTime"]) == ("a and b are full", "t1")
    assert status.with_full_pools(later, "", "t3")["conditions"] == []


@pytest.mark.feature("STO-62")
async def test_administrators_are_told_of_a_full_pool_until_it_has_room() -> None:
    def told(operator: Operator) -> str:
        return operator.conditions().get("StoragePoolFull", ("", "", ""))[2]

    text = "Storage pools are full, writes to new blocks of their volumes fail: a on n1"
    async with running() as operator:
        operator.server.put(resources.STORAGE_CLASSES, CLASSES[0])
        operator.put(POOLS)
        await operator.deploy()
        await operator.is_condition("Available", "True")
        operator.server.put(resources.CSI_STORAGE_CAPACITIES, capacity("a", "1Mi"))
        await until(lambda: told(operator) == text)
        await operator.is_condition("Available", "True")
        await until(lambda: ("StoragePoolFull", text) in operator.events())
        operator.server.put(resources.CSI_STORAGE_CAPACITIES, capacity("a", "90Gi"))
        await until(lambda: not told(operator))
        await until(lambda: ("StoragePoolHasRoom", "No storage pool is full any more") in operator.events())
