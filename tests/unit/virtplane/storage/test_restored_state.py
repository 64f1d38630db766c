"""What firmware and TPM remember, in snapshots and restores; and restores that wait for their target."""

from __future__ import annotations

import orjson
import pytest
from tests.support.waiting import until
from tests.unit.virtplane.storage.snapshotted import CLAIM, Guest, controllers, machine

from kubecore import resources
from kubecore.client import Request
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_list
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


def _labels(guest: Guest, name: str) -> dict[str, str]:
    return meta.labels(guest.api.get(_CLAIMS, name, "ns") or {})


@pytest.mark.feature("SNP-03", "SNP-13")
async def test_a_snapshot_holds_what_the_tpm_remembers() -> None:
    guest = _remembering()
    async with controllers(guest):
        await guest.take_all()
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
        await guest.take_all()
        guest.api.remove(kinds.VIRTUAL_MACHINE_INSTANCES, "vm", "ns")
        guest.restore()
        made = await guest.bind(f"restore-r-{_STATE}")
        assert _LABEL not in meta.labels(made), "the state of nobody while it is filled"
        await guest.bind("restore-r-root")
        await until(guest.is_restored)
        assert _labels(guest, f"restore-r-{_STATE}")[_LABEL] == "vm"
        assert guest.api.get(_CLAIMS, f"{_STATE}-abcde", "ns") is None
        vm = guest.api.get(kinds.VIRTUAL_MACHINES, "vm", "ns") or {}
        assert [item["name"] for item in vm["spec"]["template"]["spec"]["volumes"]] == ["root"]


@pytest.mark.feature("SNP-19")
async def test_another_machine_gets_the_state_and_that_of_the_first_stays() -> None:
    guest = _remembering()
    async with controllers(guest):
        await guest.take_all()
        guest.restore("other")
        for name in (_STATE, "root"):
            await guest.bind(f"restore-r-{name}")
        await until(guest.is_restored)
        assert _labels(guest, f"restore-r-{_STATE}")[_LABEL] == "other"
        assert _labels(guest, f"{_STATE}-abcde") == {_LABEL: "vm"}


@pytest.mark.feature("SNP-19")
async def test_no_patch_of_a_restore_makes_a_machine_in_another_namespace() -> None:
    guest = Guest()
    moved = {"op": "replace", "path": "/metadata/namespace", "value": "theirs"}
    async with controllers(guest):
        await guest.take_all()
        guest.restore("other", patches=[orjson.dumps(moved).decode()])
        await guest.bind("restore-r-root")
        await until(lambda: "Failure" in guest.told_of_restore())
        assert not guest.api.list(kinds.VIRTUAL_MACHINES, "theirs")


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
        await guest.take_all()
        assert len(guest.api.list(kinds.VOLUME_SNAPSHOTS, "ns")) == 2
        guest.api.remove(kinds.VIRTUAL_MACHINE_INSTANCES, "vm", "ns")
        guest.restore()
        await guest.bind("restore-r-root")
        await until(guest.is_restored)
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
        await guest.take_all()
        guest.restore(targetReadinessPolicy=policy)

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


@pytest.mark.feature("SNP-20")
async def test_a_restore_without_its_snapshot_says_so_and_goes_on_when_there_is_one() -> None:
    guest = Guest()
    guest.api.remove(kinds.VIRTUAL_MACHINE_INSTANCES, "vm", "ns")
    async with controllers(guest):
        guest.restore()
        (event,) = await until(lambda: _errors(guest))
        text = "VMSnapshot ns/snap does not exist"
        assert event["message"] == f"VirtualMachineRestore encountered error {text}"
        assert guest.told_of_restore() == {"Progressing": ("False", text), "Ready": ("False", text)}
        await guest.take_all()
        await guest.bind("restore-r-root")
        await until(guest.is_restored)


@pytest.mark.feature("SNP-20")
async def test_a_restore_whose_machine_nobody_lets_it_change_says_why_until_it_may() -> None:
    guest = Guest()
    guest.api.remove(kinds.VIRTUAL_MACHINE_INSTANCES, "vm", "ns")
    is_denied = True

    def deny(request: Request) -> StatusError | None:
        writes = request.method == "PATCH" and request.path.endswith("/virtualmachines/vm")
        return StatusError(403, "Forbidden", "policy x says no") if writes and is_denied else None

    async with controllers(guest):
        await guest.take_all()
        guest.api.reactions.append(deny)
        guest.restore()
        await guest.bind("restore-r-root")
        told = dict.fromkeys(("Progressing", "Ready"), ("False", "policy x says no"))
        await until(lambda: guest.told_of_restore() == told)
        assert await until(lambda: _errors(guest))
        is_denied = False
        await until(guest.is_restored)


@pytest.mark.feature("SNP-20")
async def test_a_restore_waits_while_its_target_is_another_machine_than_its_source() -> None:
    guest = Guest()
    guest.api.put(kinds.VIRTUAL_MACHINES, {**machine(), "metadata": {"name": "other", "namespace": "ns"}})
    async with controllers(guest):
        await guest.take_all()
        guest.restore("other")
        text = "restore source and restore target are different but restore target already exists"
        told = dict.fromkeys(("Progressing", "Ready"), ("False", text))
        await until(lambda: guest.told_of_restore() == told)
        guest.api.remove(kinds.VIRTUAL_MACHINES, "other", "ns")
        await guest.bind("restore-r-root")
        await until(guest.is_restored)


def _errors(guest: Guest) -> list[JsonObject]:
    found = guest.api.list(resources.EVENTS)
    return [each for each in found if each["reason"] == "VirtualMachineRestoreError"]


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
