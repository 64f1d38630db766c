"""Pools of machines: their pure decisions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from kubecore.json import JsonObject
from kubecore.objects.structs import decode, encode
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.kubevirt_v1.vm_status import VirtualMachineStatus
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.pool_v1beta1.pool import VirtualMachinePool
from virtplane.compute.controller.pool import decisions as pooling
from virtplane.compute.controller.pool import healing, rollout
from virtplane.compute.controller.pool.selection import Around

_NOW = datetime(2026, 1, 1, 1, 0, 0, tzinfo=UTC)
_NOTHING = Around(_NOW)


def _pool_document(replica_count: int, generation: int = 1, **spec: Any) -> JsonObject:
    template = {"spec": {"runStrategy": "Always", "template": {"spec": {"domain": {}}}}}
    body = {"replicas": replica_count, "selector": {}, "virtualMachineTemplate": template, **spec}
    metadata = {"name": "pool", "namespace": "ns", "uid": "p", "generation": generation}
    return {"metadata": metadata, "spec": body}


def _pool(replica_count: int, generation: int = 1, **spec: Any) -> VirtualMachinePool:
    return decode(VirtualMachinePool, _pool_document(replica_count, generation, **spec))


def _machines(*numbers: int) -> list[VirtualMachine]:
    written = _pool_document(1)
    pool = decode(VirtualMachinePool, written)
    return [decode(VirtualMachine, pooling.new_machine(pool, written, number)) for number in numbers]


def test_a_pool_takes_the_lowest_free_numbers() -> None:
    assert pooling.next_step(_pool(3), _machines(1), {}, _NOTHING).create == (0, 2)


def test_a_vm_that_is_being_deleted_keeps_its_number_until_it_is_gone() -> None:
    first, second = _machines(0, 1)
    metadata = replace(second.metadata, deletion_timestamp="2026-11-22T00:00:00Z")
    leaving = replace(second, metadata=metadata)
    assert pooling.next_step(_pool(2), [first, leaving], {}, _NOTHING) == pooling.Step()
    assert pooling.next_step(_pool(2), [first], {}, _NOTHING).create == (1,)
    assert pooling.next_step(_pool(1), [first, leaving], {}, _NOTHING).delete == ()


def test_a_pool_shrinks_in_the_order_that_was_asked_for() -> None:
    policy = {"proactive": {"selectionPolicy": {"sortPolicy": "DescendingOrder"}}}
    pool = _pool(1, scaleInStrategy=policy)
    names = [vm.metadata.name for vm in pooling.next_step(pool, _machines(0, 1, 2), {}, _NOTHING).delete]
    assert names == ["pool-2", "pool-1"]


def test_a_pool_that_is_not_to_shrink_by_itself_deletes_nothing() -> None:
    pool = _pool(1, scaleInStrategy={"unmanaged": {}})
    assert pooling.next_step(pool, _machines(0, 1, 2), {}, _NOTHING).delete == ()


_HALTED: JsonObject = {"spec": {"runStrategy": "Halted", "template": {}}}


def test_a_pool_that_is_not_to_update_by_itself_changes_nothing() -> None:
    templates = {"pool-1": _pool(1).spec.virtual_machine_template}
    changed = _pool(1, 2, updateStrategy={"unmanaged": {}}, virtualMachineTemplate=_HALTED)
    assert pooling.next_step(changed, _machines(0), templates, _NOTHING).update == ()


def test_only_a_changed_template_makes_vms_of_a_pool_outdated() -> None:
    templates = {"pool-1": _pool(1).spec.virtual_machine_template}
    vms = _machines(0)
    assert pooling.next_step(_pool(1, 2), vms, templates, _NOTHING).update == ()
    changed = _pool(1, 2, virtualMachineTemplate=_HALTED)
    assert pooling.next_step(changed, vms, templates, _NOTHING).update == tuple(vms)


def _guest(
    vm: VirtualMachine, revision: str = "pool-1", *, ready: bool = True, node: str = "n1"
) -> VirtualMachineInstance:
    metadata = {"name": vm.metadata.name, "labels": {rollout.REVISION_LABEL: revision}}
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    status = {"phase": "Running", "nodeName": node, "conditions": conditions}
    return decode(VirtualMachineInstance, {"metadata": metadata, "spec": {"domain": {}}, "status": status})


def _around(vms: Sequence[VirtualMachine], *unready: str) -> Around:
    guests = {vm.metadata.name: _guest(vm, ready=vm.metadata.name not in unready) for vm in vms}
    return Around(_NOW, guests)


def _updated(vms: Sequence[VirtualMachine], revision: str = "pool-2") -> list[VirtualMachine]:
    """The machines after the new template was written to them."""
    labels = {rollout.REVISION_LABEL: revision}
    return [replace(vm, metadata=replace(vm.metadata, labels={**vm.metadata.labels, **labels})) for vm in vms]


_CHANGED: JsonObject = {"spec": {"runStrategy": "Always", "template": {"metadata": {"labels": {"n": "x"}}}}}


def _marked(vm: VirtualMachine, **labels: str) -> VirtualMachine:
    """A machine that gives its guests labels."""
    template = replace(vm.spec.template, metadata={"labels": labels})
    return replace(vm, spec=replace(vm.spec, template=template))


def _placed(vm: VirtualMachine, **selector: str) -> VirtualMachine:
    """A machine whose guests run on some nodes only."""
    template = replace(vm.spec.template, spec=replace(vm.spec.instance, node_selector=selector))
    return replace(vm, spec=replace(vm.spec, template=template))


def _rollout(
    pool: VirtualMachinePool, vms: Sequence[VirtualMachine], around: Around, **templates: Any
) -> rollout.Rollout:
    known = {"pool-1": _pool(1).spec.virtual_machine_template, "pool-2": pool.spec.virtual_machine_template}
    return pooling.next_step(pool, vms, {**known, **templates}, around).rollout


def _names(found: Sequence[VirtualMachine] | Sequence[VirtualMachineInstance]) -> list[str]:
    return [each.metadata.name for each in found]


def test_guests_of_the_old_template_are_restarted_whenever_it_was_written() -> None:
    pool, vms = _pool(2, 2, virtualMachineTemplate=_CHANGED), _updated(_machines(0, 1))
    assert sorted(_names(_rollout(pool, vms, _around(vms)).restart)) == ["pool-0", "pool-1"]
    fresh = Around(_NOW, {vm.metadata.name: _guest(vm, "pool-2") for vm in vms})
    assert _rollout(pool, vms, fresh) == rollout.Rollout()
    strategies: list[JsonObject] = [{"opportunistic": {}}, {"unmanaged": {}}]
    for strategy in strategies:
        waiting = _pool(2, 2, virtualMachineTemplate=_CHANGED, updateStrategy=strategy)
        assert _rollout(waiting, vms, _around(vms)).restart == ()


def test_only_what_guests_are_made_of_restarts_them() -> None:
    same = encode(_pool(1).spec.virtual_machine_template)
    labelled = _pool(1, 2, virtualMachineTemplate={**same, "metadata": {"labels": {"new": "label"}}})
    vms = _machines(0)
    step = pooling.next_step(labelled, vms, {"pool-1": _pool(1).spec.virtual_machine_template}, _around(vms))
    assert (step.update, step.rollout.restart) == (tuple(vms), ())
    updated = _updated(vms)
    found = _rollout(labelled, updated, _around(updated))
    assert (found.restart, _names(found.relabel)) == ((), ["pool-0"])


@pytest.mark.parametrize(
    ("most", "unready", "restarted"),
    [
        (1, (), 1),
        ("50%", (), 2),
        ("10%", (), 1),
        (None, (), 4),
        (1, ("pool-2",), 1),
        (2, ("pool-2",), 2),
    ],
)
def test_no_more_guests_are_restarted_than_may_be_unavailable(
    most: int | str | None, unready: tuple[str, ...], restarted: int
) -> None:
    pool = _pool(4, 2, virtualMachineTemplate=_CHANGED, **({"maxUnavailable": most} if most else {}))
    vms = _updated(_machines(0, 1, 2, 3))
    found = _names(_rollout(pool, vms, _around(vms, *unready)).restart)
    assert len(found) == restarted
    assert set(unready) <= set(found), "one that is not ready costs nothing"


def test_selectors_and_order_say_which_guests_are_restarted() -> None:
    policy: JsonObject = {
        "sortPolicy": "DescendingOrder",
        "selectors": {"labelSelector": {"matchLabels": {"a": "b"}}},
    }
    pool = _pool(
        3,
        2,
        virtualMachineTemplate=_CHANGED,
        updateStrategy={"proactive": {"selectionPolicy": policy}},
    )
    plain, *marked = _updated(_machines(0, 1, 2))
    vms = [plain, *(_marked(vm, a="b") for vm in marked)]
    assert _names(_rollout(pool, vms, _around(vms)).restart) == ["pool-2", "pool-1"]
    zone = [{"key": "zone", "operator": "In", "values": ["b"]}]
    policy["selectors"]["nodeSelectorRequirementMatcher"] = zone
    pool = _pool(
        3, 2, virtualMachineTemplate=_CHANGED, updateStrategy={"proactive": {"selectionPolicy": policy}}
    )
    assert _rollout(pool, vms, _around(vms)).restart == ()
    vms[2] = _placed(vms[2], zone="b")
    assert _names(_rollout(pool, vms, _around(vms)).restart) == ["pool-2"]


def test_machines_that_the_update_does_not_mean_keep_their_template() -> None:
    selectors = {"labelSelector": {"matchLabels": {"a": "b"}}}
    strategy = {"proactive": {"selectionPolicy": {"selectors": selectors}}}
    pool = _pool(2, 2, virtualMachineTemplate=_CHANGED, updateStrategy=strategy)
    plain, marked = _machines(0, 1)
    vms = [plain, _marked(marked, a="b")]
    templates = {"pool-1": _pool(1).spec.virtual_machine_template}
    assert _names(pooling.next_step(pool, vms, templates, _around(vms)).update) == ["pool-1"]


def test_machines_whose_disks_change_are_replaced() -> None:
    disks = [{"metadata": {"name": "root"}, "spec": {}}]
    pool = _pool(
        2,
        2,
        maxUnavailable=1,
        virtualMachineTemplate={
            "spec": {"runStrategy": "Always", "dataVolumeTemplates": disks, "template": {}}
        },
    )
    vms = _machines(0, 1)
    step = pooling.next_step(pool, vms, {"pool-1": _pool(1).spec.virtual_machine_template}, _around(vms))
    assert len(step.replace) == 1
    assert set(_names(step.update)) | set(_names(step.replace)) == {"pool-0", "pool-1"}


def test_scaling_in_takes_only_machines_that_are_meant() -> None:
    label = {
        "proactive": {"selectionPolicy": {"selectors": {"labelSelector": {"matchLabels": {"go": "on"}}}}}
    }
    first, second = _machines(0, 1)
    second = _marked(second, go="on")
    pool = _pool(0, scaleInStrategy=label)
    assert pooling.next_step(pool, [first, second], {}, _NOTHING).delete == (second,)


def test_opportunistic_scaling_in_takes_machines_that_are_stopped() -> None:
    pool, vms = _pool(0, scaleInStrategy={"opportunistic": {}}), _machines(0, 1)
    around = Around(_NOW, {"pool-0": _guest(vms[0])})
    assert _names(pooling.next_step(pool, vms, {}, around).delete) == ["pool-1"]


def _failing(count: int, retry: str) -> VirtualMachine:
    (vm,) = _machines(0)
    failure = {"consecutiveFailCount": count, "retryAfterTimestamp": retry, "lastFailedVMIUID": "x"}
    return replace(vm, status=decode(VirtualMachineStatus, {"startFailure": failure}))


def test_machines_that_fail_to_start_for_long_are_replaced() -> None:
    pool = _pool(1, autohealing={"startUpFailureThreshold": 2, "minFailingToStartDuration": "30s"})
    young = _failing(2, "2026-01-01T01:00:35Z")  # 10 s before the second failure, and 5 s since
    assert healing.failing_seconds(young, _NOW) == 15
    assert pooling.next_step(pool, [young], {}, _NOTHING).replace == ()
    assert 15 <= healing.remaining_seconds(pool, [young], _NOW) < 16
    old = _failing(2, "2026-01-01T01:00:10Z")
    assert pooling.next_step(pool, [old], {}, _NOTHING).replace == (old,)
    assert pooling.next_step(_pool(1), [old], {}, _NOTHING).replace == (), "nobody asked for it"
    assert healing.failing(pool, [_failing(1, "2026-01-01T00:00:00Z")], _NOW) == []
