"""The decision for a pod with volumes: where they are, where they can be made, how many a node takes."""

from __future__ import annotations

from typing import Any

from tests.unit.kindling.scheduler.nodes_and_pods import node, place, pod, reason

from kindling.scheduler.decision import Placement, decide
from kindling.scheduler.snapshot import Volumes, take
from kubecore.json import JsonObject


def volumes(claim: JsonObject | None, *found: JsonObject, mode: str = "Immediate", by: str = "x") -> Volumes:
    return Volumes(
        lambda *_: claim,
        lambda name: next((each for each in found if each["metadata"]["name"] == name), None),
        lambda name: {"metadata": {"name": name}, "volumeBindingMode": mode, "provisioner": by},
        lambda: list(found),
    )


def claim(volume: str = "", **metadata: Any) -> JsonObject:
    return {
        "metadata": {"name": "c", "namespace": "lab", "uid": "uid-c", **metadata},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "resources": {"requests": {"storage": "1Gi"}},
            **({"volumeName": volume} if volume else {}),
        },
    }


def volume(name: str, on: str, size: str = "1Gi") -> JsonObject:
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [on]}]}
    return {
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        },
        "status": {"phase": "Available"},
    }


USING: JsonObject = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}
BOUND = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}


def test_a_bound_volume_holds_its_pod() -> None:
    bound = claim("pv", **BOUND)
    where = volumes(bound, volume("pv", "n2"))
    assert place(pod(**USING), node(), node("n2"), volumes=where) == "n2"
    message = reason(pod(**USING), node(), volumes=where)
    assert "1 node(s) didn't match PersistentVolume's node affinity." in message


def test_claims_that_are_missing_or_unbound_keep_a_pod_waiting() -> None:
    assert 'nodes are available: persistentvolumeclaim "c" not found.' in reason(
        pod(**USING), node(), volumes=volumes(None)
    )
    assert "pod has unbound immediate PersistentVolumeClaims." in reason(
        pod(**USING), node(), volumes=volumes(claim())
    )


def test_waiting_claims_get_the_smallest_volume_that_is_near() -> None:
    found = (volume("big", "n1", "5Gi"), volume("small", "n1"), volume("far", "n2"))
    where = volumes(claim(), *found, mode="WaitForFirstConsumer", by="kubernetes.io/no-provisioner")
    result = decide(pod(**USING), take([node()], [], volumes=where))
    assert isinstance(result, Placement)
    assert [each["metadata"]["name"] for _, each in result.binding.bind] == ["small"]
    nothing = volumes(claim(), mode="WaitForFirstConsumer", by="kubernetes.io/no-provisioner")
    assert "didn't find available persistent volumes to bind" in reason(pod(**USING), node(), volumes=nothing)


def test_a_driver_makes_the_volume_where_the_pod_goes() -> None:
    where = volumes(claim(), mode="WaitForFirstConsumer", by="csi.example.com")
    result = decide(pod(**USING), take([node()], [], volumes=where))
    assert isinstance(result, Placement)
    assert len(result.binding.provision) == 1


def csi_volume(name: str) -> JsonObject:
    source = {"driver": "d.example.com", "volumeHandle": f"handle-{name}"}
    return {"metadata": {"name": name}, "spec": {"capacity": {"storage": "1Gi"}, "csi": source}}


def limited(count: int | None, *present: JsonObject, attached: tuple[str, ...] = ()) -> Volumes:
    """Claims named like the volumes that they are bound to, on nodes with this limit of the driver."""
    driver: JsonObject = {"name": "d.example.com", "nodeID": "n"}
    if count is not None:
        driver["allocatable"] = {"count": count}
    where = volumes(None, *present)
    where.claim = lambda _, name: {**claim(name, **BOUND), "metadata": {**BOUND, "name": name}}
    where.csi_node = lambda name: {"metadata": {"name": name}, "spec": {"drivers": [driver]}}
    where.attachments = lambda: [
        {"spec": {"nodeName": "n1", "source": {"persistentVolumeName": name}}} for name in attached
    ]
    return where


def using(*claims: str) -> JsonObject:
    return {"volumes": [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]}


def test_a_node_takes_as_many_volumes_of_a_driver_as_the_driver_says() -> None:
    a, b = csi_volume("a"), csi_volume("b")
    other = pod("other", on="n1", **using("a"))
    full = "0/1 nodes are available: 1 node(s) exceed max volume count."
    assert reason(pod(**using("b")), node(), pods=(other,), volumes=limited(1, a, b)).startswith(full)
    assert reason(pod(**using("a", "b")), node(), volumes=limited(1, a, b)).startswith(full)
    assert reason(pod(**using("b")), node(), volumes=limited(1, a, b, attached=("a",))).startswith(full)
    # The volume that is there already takes no more room.
    assert place(pod(**using("a")), node(), pods=(other,), volumes=limited(1, a, b)) == "n1"
    assert place(pod(**using("b")), node(), pods=(other,), volumes=limited(2, a, b)) == "n1"
    assert place(pod(**using("b")), node(), pods=(other,), volumes=limited(None, a, b)) == "n1"


def test_volumes_that_are_yet_to_be_made_count_for_the_limit_of_their_driver() -> None:
    where = volumes(claim(), mode="WaitForFirstConsumer", by="d.example.com")
    where.csi_node = limited(0).csi_node
    assert "exceed max volume count" in reason(pod(**USING), node(), volumes=where)


def test_a_volume_is_made_where_its_driver_has_room_for_it() -> None:
    where = volumes(claim(), mode="WaitForFirstConsumer", by="csi.example.com")
    where.csi_driver = lambda _: {"spec": {"storageCapacity": True}}
    rooms: list[JsonObject] = []
    where.capacities = lambda: rooms
    none = "1 node(s) did not have enough free storage."
    assert none in reason(pod(**USING), node(), volumes=where)

    def room(on: str, capacity: str, **more: str) -> JsonObject:
        topology = {"matchLabels": {"kubernetes.io/hostname": on}}
        return {"storageClassName": "local", "nodeTopology": topology, "capacity": capacity, **more}

    rooms += [room("n1", "500Mi"), {**room("n1", "9Gi"), "storageClassName": "other"}]
    rooms += [room("n1", "9Gi", maximumVolumeSize="512Mi"), {"storageClassName": "local", "capacity": "9Gi"}]
    assert none in reason(pod(**USING), node(), volumes=where)
    rooms.append(room("n2", "1Gi"))
    assert place(pod(**USING), node(), node("n2"), volumes=where) == "n2"
    where.csi_driver = lambda _: {"spec": {"storageCapacity": False}}
    assert place(pod(**USING), node(), volumes=where) == "n1"
