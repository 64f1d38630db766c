"""Structs as views of documents."""

from __future__ import annotations

import asyncio

import pytest

from kubecore.json import JsonObject
from kubecore.objects.structs import UnfitDocument, decode
from kubecore.runtime import Informer
from kubecore.testing import MemoryApi
from virtplane.api.kubevirt_v1.cpu import CPU
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.resources import VIRTUAL_MACHINE_INSTANCES
from virtplane.api.schema import object_schema


def _document(**domain: object) -> JsonObject:
    metadata = {
        "name": "vm",
        "namespace": "ns",
        "uid": "u",
        "labels": {"a": "b"},
        "ownerReferences": [
            {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "vm", "uid": "o"}
        ],
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "finalizers": ["f"],
        "generation": 3,
        "managedFields": [{"manager": "m"}],
    }
    return {
        "kind": "VirtualMachineInstance",
        "metadata": metadata,
        "spec": {"domain": {"devices": {}, **domain}},
    }


def test_metadata_is_read_by_field() -> None:
    found = decode(VirtualMachineInstance, _document()).metadata
    assert (found.name, found.namespace, found.uid, found.generation) == ("vm", "ns", "u", 3)
    assert (found.labels, found.finalizers, found.annotations) == ({"a": "b"}, ("f",), {})
    assert (found.owner_references[0].kind, found.deletion_timestamp) == (
        "VirtualMachine",
        "2026-01-01T00:00:00Z",
    )


def test_what_is_absent_on_the_way_is_empty() -> None:
    domain = decode(VirtualMachineInstance, {}).spec.domain
    assert (domain.cpu, domain.cpu.cores, domain.firmware.bootloader.efi) == (CPU(), None, None)
    assert domain.devices.tpm is None


def test_absent_parts_of_two_instances_are_the_same_empty_ones() -> None:
    first, second = (decode(VirtualMachineInstance, _document()) for _ in range(2))
    assert first.spec.domain.cpu is second.spec.domain.cpu


def test_a_view_cannot_be_changed() -> None:
    vmi = decode(VirtualMachineInstance, _document())
    with pytest.raises(AttributeError, match="immutable"):
        setattr(vmi.spec.domain.cpu, "cores", 2)  # noqa: B010 - the type checker refuses the plain assignment


def test_an_instance_that_does_not_fit_is_named() -> None:
    with pytest.raises(
        UnfitDocument, match=r"^VirtualMachineInstance ns/vm: spec.domain.cpu.cores: Expected"
    ):
        decode(VirtualMachineInstance, _document(cpu={"cores": "two"}))


def test_members_that_readers_may_take_for_granted_stay_required_in_the_definition() -> None:
    schema = object_schema(VirtualMachineInstance)
    assert schema["required"] == ["spec"]
    assert schema["properties"]["spec"]["required"] == ["domain"]
    assert schema["properties"]["spec"]["properties"]["domain"]["required"] == ["devices"]
    assert schema["properties"]["metadata"] == {"type": "object"}


@pytest.mark.looptime
async def test_instances_are_cached_as_structs() -> None:
    api = MemoryApi([VIRTUAL_MACHINE_INSTANCES])
    api.put(VIRTUAL_MACHINE_INSTANCES, _document(cpu={"cores": 2}))
    informer = Informer(api.client(), VIRTUAL_MACHINE_INSTANCES, struct=VirtualMachineInstance)
    task = asyncio.create_task(informer.run())
    async with asyncio.timeout(60):
        await informer.wait_synced()
    vmi = informer.get("ns", "vm")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert vmi is not None and vmi.spec.domain.cpu.cores == 2
