"""Restores of machines whose disks come from templates of DataVolumes; the test plays CDI."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.waiting import until
from tests.unit.virtplane.storage.snapshotted import CLAIM, Guest, controllers, machine

from kubecore import resources
from kubecore.json import JsonObject, deep_copy
from kubecore.objects import meta
from virtplane.api import cdi_labels
from virtplane.api import resources as kinds

pytestmark = pytest.mark.looptime

_VOLUMES = kinds.DATA_VOLUMES
_RESTORED = "restore-r-root"
_LONG_SECONDS = 30.0
_SPEC: JsonObject = {"source": {"blank": {}}, "storage": {"resources": {"requests": {"storage": "1Gi"}}}}


def _provisioned() -> Guest:
    """A guest whose disk is the DataVolume of a template."""
    guest = Guest()
    guest.api.remove(kinds.VIRTUAL_MACHINE_INSTANCES, "vm", "ns")
    vm = machine()
    vm["spec"]["dataVolumeTemplates"] = [{"metadata": {"name": "c", "labels": {"a": "b"}}, "spec": _SPEC}]
    volume = {"name": "root", "dataVolume": {"name": "c", "hotpluggable": True}}
    vm["spec"]["template"]["spec"]["volumes"] = [volume]
    made = guest.api.put(kinds.VIRTUAL_MACHINES, vm)
    owner = meta.new_controller_ref(made, kinds.VIRTUAL_MACHINES)
    of = {"name": "c", "namespace": "ns", "ownerReferences": [owner]}
    filled = guest.api.put(_VOLUMES, {"metadata": of, "spec": _SPEC, "status": {"phase": "Succeeded"}})
    claim = deep_copy(CLAIM)
    claim["metadata"]["ownerReferences"] = [meta.new_controller_ref(filled, _VOLUMES)]
    guest.api.put(resources.PERSISTENT_VOLUME_CLAIMS, claim)
    return guest


async def _fill(guest: Guest) -> JsonObject:
    """Have CDI say that the restored DataVolume is filled; returns it as it was made."""
    made: JsonObject = await until(lambda: guest.api.get(_VOLUMES, _RESTORED, "ns"))
    assert not guest.is_restored(), "it waits for its DataVolumes"
    guest.api.put(_VOLUMES, {**deep_copy(made), "status": {"phase": "Succeeded"}})
    return made


@pytest.mark.feature("SNP-19", "SNP-20")
async def test_a_restored_disk_is_a_data_volume_again_and_the_one_before_goes() -> None:
    guest = _provisioned()
    async with controllers(guest):
        await guest.take_all()
        guest.restore()
        claim = await guest.bind(_RESTORED)
        assert meta.annotations(claim)[cdi_labels.POPULATED_FOR] == _RESTORED
        volume = await _fill(guest)
        await until(guest.is_restored)
        status = guest.restored()
        assert status["deletedDataVolumes"] == ["c"]
        assert [item["dataVolumeName"] for item in status["restores"]] == [_RESTORED]
        vm = guest.api.get(kinds.VIRTUAL_MACHINES, "vm", "ns") or {}
        (template,) = vm["spec"]["dataVolumeTemplates"]
        assert template == {"metadata": {"name": _RESTORED, "labels": {"a": "b"}}, "spec": _SPEC}
        (disk,) = vm["spec"]["template"]["spec"]["volumes"]
        assert disk == {"name": "root", "dataVolume": {"name": _RESTORED, "hotpluggable": True}}
        assert meta.annotations(volume)[cdi_labels.PRE_POPULATED] == "true"
        assert (meta.controller_of(volume) or {})["uid"] == meta.uid(vm)
        assert volume["spec"] == _SPEC
        assert [meta.name(each) for each in guest.api.list(_VOLUMES, "ns")] == [_RESTORED]
        claims = resources.PERSISTENT_VOLUME_CLAIMS
        assert meta.controller_of(guest.api.get(claims, _RESTORED, "ns") or {}) is None, "CDI takes it over"


@pytest.mark.feature("SNP-17", "SNP-19")
async def test_another_machine_has_a_data_volume_of_its_own_and_the_first_keeps_its() -> None:
    guest = _provisioned()
    async with controllers(guest):
        await guest.take_all()
        guest.restore("other")
        await guest.bind(_RESTORED)
        volume = await _fill(guest)
        await until(guest.is_restored)
        assert "deletedDataVolumes" not in guest.restored()
        assert (meta.controller_of(volume) or {})["name"] == "other"
        assert {meta.name(each) for each in guest.api.list(_VOLUMES, "ns")} == {"c", _RESTORED}


async def test_a_data_volume_that_somebody_else_controls_stays() -> None:
    guest = _provisioned()
    async with controllers(guest):
        await guest.take_all()
        taken = deep_copy(guest.api.get(_VOLUMES, "c", "ns") or {})
        taken["metadata"]["ownerReferences"][0]["uid"] = "another"
        guest.api.put(_VOLUMES, taken)
        guest.restore()
        await guest.bind(_RESTORED)
        await _fill(guest)
        await until(guest.is_restored)
        await asyncio.sleep(_LONG_SECONDS)
        assert guest.api.get(_VOLUMES, "c", "ns") is not None


@pytest.mark.feature("SNP-19")
async def test_a_claim_of_the_machine_stays_what_it_was_under_another_name() -> None:
    guest = Guest()
    vm = machine()
    vm["spec"]["template"]["spec"]["volumes"][0]["persistentVolumeClaim"]["hotpluggable"] = True
    guest.api.put(kinds.VIRTUAL_MACHINES, vm)
    async with controllers(guest):
        await guest.take_all()
        guest.api.remove(kinds.VIRTUAL_MACHINE_INSTANCES, "vm", "ns")
        guest.restore()
        await guest.bind(_RESTORED)
        await until(guest.is_restored)
        restored = guest.api.get(kinds.VIRTUAL_MACHINES, "vm", "ns") or {}
        (disk,) = restored["spec"]["template"]["spec"]["volumes"]
        assert disk["persistentVolumeClaim"] == {"claimName": _RESTORED, "hotpluggable": True}
        assert not guest.api.list(_VOLUMES, "ns")
