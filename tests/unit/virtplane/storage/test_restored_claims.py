"""Which restored claims are deleted together with their machine."""

from __future__ import annotations

import pytest
from tests.support.waiting import until
from tests.unit.virtplane.storage.snapshotted import CLAIM, Guest, controllers

from kubecore import resources
from kubecore.json import JsonObject, deep_copy
from kubecore.objects import meta
from virtplane.api import resources as kinds

pytestmark = pytest.mark.looptime

_CLAIMS = resources.PERSISTENT_VOLUME_CLAIMS


async def _restored_to(guest: Guest, target: str) -> JsonObject:
    """The claim after a restore of a snapshot of the machine ``vm`` to the machine `target`."""
    async with controllers(guest):
        await guest.take_all()
        guest.api.remove(kinds.VIRTUAL_MACHINE_INSTANCES, "vm", "ns")
        guest.restore(target)
        made = await guest.bind("restore-r-root")
        await until(guest.is_restored)
        return guest.api.get(_CLAIMS, meta.name(made), "ns") or {}


async def test_the_claim_of_a_new_machine_stays_without_it_where_that_of_the_snapshot_did() -> None:
    claim = await _restored_to(Guest(), "new")
    assert meta.owner_references(claim) == []


async def test_the_claim_of_a_new_machine_goes_with_it_where_that_of_the_snapshot_did() -> None:
    guest = Guest()
    source = guest.api.get(kinds.VIRTUAL_MACHINES, "vm", "ns") or {}
    owned = deep_copy(CLAIM)
    owned["metadata"]["ownerReferences"] = [meta.new_owner_ref(source, kinds.VIRTUAL_MACHINES)]
    guest.api.put(_CLAIMS, owned)
    claim = await _restored_to(guest, "new")
    new = guest.api.get(kinds.VIRTUAL_MACHINES, "new", "ns") or {}
    assert [owner["uid"] for owner in meta.owner_references(claim)] == [meta.uid(new)]


async def test_the_claim_of_the_machine_of_the_snapshot_goes_with_it() -> None:
    guest = Guest()
    claim = await _restored_to(guest, "vm")
    machine = guest.api.get(kinds.VIRTUAL_MACHINES, "vm", "ns") or {}
    assert [owner["uid"] for owner in meta.owner_references(claim)] == [meta.uid(machine)]
