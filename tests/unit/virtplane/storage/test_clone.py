"""Clones: what of a machine they keep, and what they get anew."""

from __future__ import annotations

from kubecore.objects.structs import decode
from virtplane.api.clone_v1beta1.clone import VirtualMachineClone
from virtplane.api.snapshot_v1beta1.snapshot import SnapshotVirtualMachine
from virtplane.storage.clone import decisions


def test_a_clone_keeps_the_labels_that_filters_want() -> None:
    labels = {"keep": "1", "drop": "2", "a/b": "3"}
    assert decisions.filtered(labels, ["*", "!drop"]) == {"keep": "1", "a/b": "3"}
    assert decisions.filtered(labels, ["a/*"]) == {"a/b": "3"}


def test_no_filter_of_a_user_holds_up_the_clones_of_others() -> None:
    """Python's own expressions would take longer for this one than the universe has."""
    labels = {"a" * 62 + "b": "1"}
    assert decisions.filtered(labels, ["(a+)+$"]) == {}
    assert decisions.filtered(labels, ["(", "b$"]) == labels


def test_a_clone_gets_an_identity_of_its_own() -> None:
    firmware = {"uuid": "u", "serial": "s"}
    devices = {"interfaces": [{"name": "default", "macAddress": "02:00:00:00:00:01"}]}
    source = {"spec": {"template": {"spec": {"domain": {"firmware": firmware, "devices": devices}}}}}
    spec = {"source": {"name": "vm"}, "newSMBiosSerial": "new"}
    clone = decode(VirtualMachineClone, {"metadata": {"uid": "c"}, "spec": spec})
    machine = decode(SnapshotVirtualMachine, source)
    operations = {item["path"].rpartition("/")[2]: item for item in decisions.patches(clone, machine)}
    assert operations["uuid"]["op"] == operations["macAddress"]["op"] == "remove"
    assert operations["serial"]["value"] == "new"
