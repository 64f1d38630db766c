"""What firmware and TPM remember, in snapshots and restores; and restores that wait for their target."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.waiting import until
from tests.unit.virtplane.storage.snapshotted import CLAIM, TAKEN, Guest, controllers, machine

from kubecore import resources
from kubecore.json import JsonObject, deep_copy, get_list
from kubecore.objects import meta
from kubecore.objects.structs import decode
from virtplane.api import resources as kinds
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.cluster import persistentstate
from virtplane.compute.controller.vm.snapshots import volume_snapshot_statuses

pytestmark = pytest.mark.looptime

_RESTORES, _CLAIMS = kinds.VIRTUAL_MACHINE_RESTORES, resources.PERSISTENT_VOLUME_CLAIMS
_LABEL = "persistent-state-for"
_STATE = f"{_LABEL}-vm"


def _claim(name: str, machine_name: str = "vm") -> JsonObject:
    metadata = {"name": name, "namespace": "ns", "labels": {_LABEL: machine_name}}
    return {**CLAIM, "metadata": metadata}


def _remembering() -> Guest:
    """A guest whose TPM remembers."""
    guest = Guest()
    vm = machine()
    vm["spec"]["template"]["spec"]["domain"]["devices"]["tpm"] = {"persistent": True}
    vm["status"]["volumeSnapshotStatuses"].append({"name": _STATE, "enabled": True})
    guest.api.put(kinds.VIRTUAL_MACHINES, vm)
    guest.api.put(_CLAIMS, _claim(f"{_STATE}-abcde"))
    return guest


async def _taken(guest: Guest) -> None:
    guest.take()
    for volume in await until(lambda: guest.api.list(kinds.VOLUME_SNAPSHOTS, "ns")):
        guest.api.put(kinds.VOLUME_SNAPSHOTS, {**deep_copy(volume), "status": TAKEN})
    await until(lambda: guest.told().get("Ready") == ("True", "Ready"))


def _restore(guest: Guest, target: str = "vm", **spec: Any) -> None:
    wanted = {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": target}
    guest.api.put(
        _RESTORES,
        {
            "apiVersion": _RESTORES.api_version,
            "kind": "VirtualMachineRestore",
            "metadata": {"name": "back", "namespace": "ns", "uid": "r"},
            "spec": {"target": wanted, "virtualMachineSnapshotName": "snap", **spec},
        },
    )


async def _bind(guest: Guest, name: str) -> JsonObject:
    """Have the storage bind a restored claim; returns it as it was made."""
    made = await until(lambda: guest.api.get(_CLAIMS, name, "ns"))
    guest.api.put(_CLAIMS, {**deep_copy(made), "status": {"phase": "Bound"}})
    found: JsonObject = made
    return found


def _labels(guest: Guest, name: str) -> dict[str, str]:
    return meta.labels(guest.api.get(_CLAIMS, name, "ns") or {})


def _is_complete(guest: Guest) -> bool:
    found = guest.api.get(_RESTORES, "back", "ns") or {}
    return found.get("status", {}).get("complete") is True


@pytest.mark.feature("SNP-03", "SNP-13")
async def test_a_snapshot_holds_what_the_tpm_remembers() -> None:
    guest = _remembering()
    async with controllers(guest):
        await _taken(guest)
        included = guest.snapshot()["status"]["snapshotVolumes"]["includedVolumes"]
        assert sorted(included) == [_STATE, "root"]
        (content,) = guest.api.list(kinds.VIRTUAL_MACHINE_SNAPSHOT_CONTENTS, "ns")
        sources = {
            backup["volumeName"]: backup["persistentVolumeClaim"]["metadata"]["name"]
            for backup in get_list(content, "spec", "volumeBackups")
        }
        assert sources == {"root": "c", _STATE: f"{_STATE}-abcde"}


@pytest.mark.feature("SNP-19")
async def test_a_restored_machine_remembers_what_it_did_then_and_the_later_state_goes() -> None:
    guest = _remembering()
    async with controllers(guest):
        await _taken(guest)
        guest.api.remove(kinds.VIRTUAL_MACHINE_INSTANCES, "vm", "ns")
        _restore(guest)
        made = await _bind(guest, f"restore-r-{_STATE}")
        assert _LABEL not in meta.labels(made), "the state of nobody while it is filled"
        await _bind(guest, "restore-r-root")
        await until(lambda: _is_complete(guest))
        assert _labels(guest, f"restore-r-{_STATE}")[_LABEL] == "vm"
        assert guest.api.get(_CLAIMS, f"{_STATE}-abcde", "ns") is None
        vm = guest.api.get(kinds.VIRTUAL_MACHINES, "vm", "ns") or {}
        assert [item["name"] for item in vm["spec"]["template"]["spec"]["volumes"]] == ["root"]


@pytest.mark.feature("SNP-19")
async def test_another_machine_gets_the_state_and_that_of_the_first_stays() -> None:
    guest = _remembering()
    async with controllers(guest):
        await _taken(guest)
        _restore(guest, "other")
        for name in (_STATE, "root"):
            await _bind(guest, f"restore-r-{name}")
        await until(lambda: _is_complete(guest))
        assert _labels(guest, f"restore-r-{_STATE}")[_LABEL] == "other"
        assert _labels(guest, f"{_STATE}-abcde") == {_LABEL: "vm"}


@pytest.mark.feature("SNP-19")
async def test_a_memory_dump_is_not_restored() -> None:
    guest = Guest()
    dumped = machine()
    dump = {"name": "dump", "memoryDump": {"claimName": "d"}}
    dumped["spec"]["template"]["spec"]["volumes"].append(dump)
    dumped["status"]["volumeSnapshotStatuses"].append({"name": "dump", "enabled": True})
    guest.api.put(kinds.VIRTUAL_MACHINES, dumped)
    guest.api.put(_CLAIMS, {**CLAIM, "metadata": {"name": "d", "namespace": "ns"}})
    async with controllers(guest):
        await _taken(guest)
        assert len(guest.api.list(kinds.VOLUME_SNAPSHOTS, "ns")) == 2
        guest.api.remove(kinds.VIRTUAL_MACHINE_INSTANCES, "vm", "ns")
        _restore(guest)
        await _bind(guest, "restore-r-root")
        await until(lambda: _is_complete(guest))
        assert {meta.name(claim) for claim in guest.api.list(_CLAIMS, "ns")} == {"c", "d", "restore-r-root"}


@pytest.mark.feature("SNP-19", "SNP-20")
@pytest.mark.parametrize(
    ("policy", "reason", "event"),
    [
        ("WaitGracePeriod", "or the operation will fail after 5m0s", "Restore target VMI still exists"),
        ("WaitEventually", "to proceed with restore", "Restore target VMI still exists"),
        ("StopTarget", "Automatically stopping", "Automatically stopping"),
    ],
)
async def test_a_restore_says_what_it_waits_for_while_its_target_is_on(
    policy: str, reason: str, event: str
) -> None:
    guest = Guest()
    async with controllers(guest):
        await _taken(guest)
        _restore(guest, targetReadinessPolicy=policy)

        def told() -> JsonObject | None:
            return meta.get_condition(guest.api.get(_RESTORES, "back", "ns") or {}, "Progressing")

        condition = await until(told)
        assert condition["status"] == "False"
        assert reason in condition["reason"]
        found = await until(
            lambda: [each for each in guest.api.list(resources.EVENTS) if "TargetNotReady" in str(each)]
        )
        assert found[0]["type"] == "Warning"
        assert found[0]["message"].startswith(event)


def test_the_state_counts_among_the_volumes_that_can_be_snapshotted() -> None:
    vm = machine()
    vm["spec"]["template"]["spec"]["domain"]["firmware"] = {"bootloader": {"efi": {"persistent": True}}}
    claims = {"x": _claim("x")}
    volumes = persistentstate.volumes_of(decode(VirtualMachine, vm), claims)
    statuses = volume_snapshot_statuses(volumes, {}, [], [])
    assert [each["name"] for each in statuses] == ["root", _STATE]
    del vm["spec"]["template"]["spec"]["domain"]["firmware"]
    assert len(persistentstate.volumes_of(decode(VirtualMachine, vm), claims)) == 1


def test_the_claim_of_the_state_is_the_one_that_stays() -> None:
    leaving = _claim("a")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert persistentstate.claim_of([leaving, _claim("b"), _claim("c", "other")], "vm") == _claim("b")
    assert persistentstate.claim_of([leaving], "vm") == leaving
    assert len(persistentstate.volume_name("m" * 63)) == 63
