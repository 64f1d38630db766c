"""Restores whose claims take the place of those from which the snapshot was taken."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.waiting import until
from tests.unit.virtplane.storage.snapshotted import CLAIM, Guest, controllers

from kubecore import resources
from kubecore.json import JsonObject, deep_copy
from kubecore.objects import meta
from virtplane.api import cdi_labels
from virtplane.api import resources as kinds
from virtplane.storage.restore.decisions import LAST_RESTORE

pytestmark = pytest.mark.looptime

_CLAIMS = resources.PERSISTENT_VOLUME_CLAIMS
_IN_PLACE = {"volumeRestorePolicy": "InPlace"}
_LONG_SECONDS = 30.0


def _off() -> Guest:
    guest = Guest()
    claim = deep_copy(CLAIM)
    claim["metadata"] |= {"uid": "before"}
    guest.api.put(_CLAIMS, claim)
    return guest


def _claim(guest: Guest) -> JsonObject:
    return guest.api.get(_CLAIMS, "c", "ns") or {}


async def _is_anew(guest: Guest) -> JsonObject:
    """Wait for the claim that took the place of the one before, and have the storage bind it."""

    def found() -> JsonObject | None:
        claim = _claim(guest)
        return claim if claim and meta.uid(claim) != "before" else None

    await until(found)
    return await guest.bind("c")


async def _snapshot_and_stop(guest: Guest) -> None:
    await guest.take_all()
    guest.api.remove(kinds.VIRTUAL_MACHINE_INSTANCES, "vm", "ns")


@pytest.mark.feature("SNP-19", "SNP-21")
async def test_the_claim_is_made_anew_under_its_name_and_goes_with_the_machine() -> None:
    guest = _off()
    async with controllers(guest):
        await _snapshot_and_stop(guest)
        guest.restore(**_IN_PLACE)
        made = await _is_anew(guest)
        assert made["spec"]["dataSource"]["kind"] == "VolumeSnapshot"
        await until(guest.is_restored)
        assert [item["persistentVolumeClaim"] for item in guest.restored()["restores"]] == ["c"]
        vm = guest.api.get(kinds.VIRTUAL_MACHINES, "vm", "ns") or {}
        (disk,) = vm["spec"]["template"]["spec"]["volumes"]
        assert disk == {"name": "root", "persistentVolumeClaim": {"claimName": "c"}}
        assert (meta.controller_of(_claim(guest)) or {})["uid"] == meta.uid(vm)


@pytest.mark.feature("SNP-19")
async def test_the_data_volume_of_a_claim_waits_for_the_one_that_takes_its_place() -> None:
    guest = _off()
    volume = guest.api.put(
        kinds.DATA_VOLUMES, {"metadata": {"name": "dv", "namespace": "ns"}, "status": {"phase": "Succeeded"}}
    )
    owned = deep_copy(_claim(guest))
    owned["metadata"]["ownerReferences"] = [meta.new_controller_ref(volume, kinds.DATA_VOLUMES)]
    guest.api.put(_CLAIMS, owned)
    async with controllers(guest):
        await _snapshot_and_stop(guest)
        guest.restore(**_IN_PLACE)
        made = await _is_anew(guest)
        assert meta.annotations(made)[cdi_labels.POPULATED_FOR] == "dv"
        await until(guest.is_restored)
        (restored,) = guest.restored()["restores"]
        assert restored["dataVolumeName"] == "dv"
        kept = guest.api.get(kinds.DATA_VOLUMES, "dv", "ns") or {}
        assert meta.annotations(kept)[cdi_labels.PRE_POPULATED] == "dv"
        assert meta.annotations(kept)["restore.kubevirt.io/name"] == "back"
        assert meta.controller_of(_claim(guest)) is None, "CDI takes it over"


async def test_a_claim_stays_whose_snapshot_is_being_deleted() -> None:
    guest = _off()
    async with controllers(guest):
        await _snapshot_and_stop(guest)
        (snapshot,) = guest.api.list(kinds.VOLUME_SNAPSHOTS, "ns")
        ending = {"finalizers": ["a/b"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
        guest.api.put(kinds.VOLUME_SNAPSHOTS, {**snapshot, "metadata": {**snapshot["metadata"], **ending}})
        guest.restore(**_IN_PLACE)
        text = f"missing volumeSnapshot {meta.name(snapshot)}"
        await until(lambda: guest.told_of_restore().get("Ready") == ("False", text))
        await asyncio.sleep(_LONG_SECONDS)
        assert meta.uid(_claim(guest)) == "before"


async def test_a_claim_stays_while_another_guest_uses_it() -> None:
    guest = _off()
    volumes = [{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}]
    async with controllers(guest):
        await _snapshot_and_stop(guest)
        guest.api.put(
            kinds.VIRTUAL_MACHINE_INSTANCES,
            {"metadata": {"name": "other", "namespace": "ns"}, "spec": {"domain": {}, "volumes": volumes}},
        )
        guest.restore(**_IN_PLACE)
        user = "VirtualMachineInstance ns/other"
        text = f"PVC ns/c cannot be restored in place while {user} uses it"
        await until(lambda: guest.told_of_restore().get("Ready") == ("False", text))
        await asyncio.sleep(_LONG_SECONDS)
        assert meta.uid(_claim(guest)) == "before"
        guest.api.remove(kinds.VIRTUAL_MACHINE_INSTANCES, "other", "ns")
        await _is_anew(guest)
        await until(guest.is_restored)


async def test_a_claim_that_is_still_ending_is_waited_for() -> None:
    guest = _off()
    held = deep_copy(_claim(guest))
    held["metadata"]["finalizers"] = ["kubernetes.io/pvc-protection"]
    guest.api.put(_CLAIMS, held)
    async with controllers(guest):
        await _snapshot_and_stop(guest)
        guest.restore(**_IN_PLACE)
        await until(lambda: meta.is_being_deleted(_claim(guest)))
        await asyncio.sleep(_LONG_SECONDS)
        assert not guest.is_restored()
        assert guest.told_of_restore()["Progressing"] == ("True", "Creating new PVCs")
        guest.api.remove(_CLAIMS, "c", "ns")
        await _is_anew(guest)
        await until(guest.is_restored)


@pytest.mark.feature("SNP-19")
async def test_the_next_restore_makes_the_claim_anew_again() -> None:
    guest = _off()
    claim = deep_copy(_claim(guest))
    claim["metadata"]["annotations"] = {LAST_RESTORE: "back-earlier"}
    guest.api.put(_CLAIMS, claim)
    async with controllers(guest):
        await _snapshot_and_stop(guest)
        guest.restore(**_IN_PLACE)
        made = await _is_anew(guest)
        assert meta.annotations(made)[LAST_RESTORE] == "back-r"
        await until(guest.is_restored)


async def test_a_claim_that_only_the_restore_names_is_neither_deleted_nor_taken() -> None:
    guest = _off()
    kept = {"metadata": {"name": "kept", "namespace": "ns", "uid": "theirs"}, "status": {"phase": "Bound"}}
    guest.api.put(_CLAIMS, {**kept, "spec": {}})
    async with controllers(guest):
        await _snapshot_and_stop(guest)
        guest.restore(**_IN_PLACE, volumeRestoreOverrides=[{"volumeName": "root", "restoreName": "kept"}])
        text = "PVC ns/kept already exists and is not of this restore"
        await until(lambda: guest.told_of_restore().get("Ready") == ("False", text))
        await asyncio.sleep(_LONG_SECONDS)
        claim = guest.api.get(_CLAIMS, "kept", "ns") or {}
        assert (meta.uid(claim), meta.controller_of(claim)) == ("theirs", None)
