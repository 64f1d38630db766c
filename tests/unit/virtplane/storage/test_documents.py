"""Patches made of structs are those that documents would give."""

from __future__ import annotations

from kubecore.json import JsonObject, deep_copy
from kubecore.objects.structs import decode
from kubecore.patch.guarded import guarded_patch, same_version
from virtplane.storage.snapshot.documents import HeldMachine, Holders, hold_patch


def _machine(**more: object) -> JsonObject:
    metadata = {"name": "vm", "namespace": "ns", "uid": "u", "resourceVersion": "7", "managedFields": [{}]}
    return {"metadata": {**metadata, "finalizers": ["other"]}, "spec": {}, **more}


def test_a_machine_is_held_at_the_version_that_was_read_whether_it_has_a_status_or_not() -> None:
    for document in (_machine(), _machine(status={}), _machine(status={"ready": True})):
        held = deep_copy(document)
        held.setdefault("status", {})["snapshotInProgress"] = "s"
        expected = [*same_version(document), *guarded_patch(document, held, ("status",))]
        machine = decode(HeldMachine, document)
        assert hold_patch(machine, Holders(snapshot_in_progress="s")) == expected
