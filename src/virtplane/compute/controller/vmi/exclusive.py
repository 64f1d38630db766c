"""Claims that one guest at a time may have as a disk: those that cannot be written to from many nodes.

Kubernetes lets all pods of a node use a ReadWriteOnce claim at the same time, and those of other nodes as
well if its driver does not attach volumes. Two guests that write to one disk destroy what is on it, and QEMU
locks files but no devices. A disk that its owner calls shareable, and one that is only read, can be had by
many.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kubecore.json import JsonObject, get_list
from virtplane.api.kubevirt_v1.disks import Disk
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.kubevirt_v1.volumes import claim_name, kind_of

_OF_MANY = frozenset({"ReadWriteMany", "ReadOnlyMany"})


def written_claims(vmi: VirtualMachineInstance) -> Iterator[str]:
    """The claims that are disks which the guest writes to and does not share."""
    alone = {disk.name for disk in vmi.spec.domain.devices.disks if _is_written_alone(disk)}
    for volume in vmi.spec.volumes:
        kind = kind_of(volume)
        if kind is not None and kind.claim_is == "disk" and volume.name in alone:
            yield claim_name(volume)


def exclusive_claims(vmi: VirtualMachineInstance, claims: Mapping[str, JsonObject]) -> Iterator[str]:
    """Those of the guest's claims, among `claims` by name, that no other guest may write to meanwhile."""
    for name in written_claims(vmi):
        claim = claims.get(name)
        if claim is not None and _OF_MANY.isdisjoint(get_list(claim, "spec", "accessModes")):
            yield name


def _is_written_alone(disk: Disk) -> bool:
    if disk.shareable or disk.cdrom is not None:
        return False
    target = disk.lun or disk.disk
    return target is None or not target.readonly
