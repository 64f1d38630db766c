"""The claim that keeps what a machine's firmware and TPM remember, and the volume that stands for it.

The claim is in no template: it is found by its label. Snapshots and restores treat it as one more volume.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from kubecore.json import JsonObject
from kubecore.objects import meta
from virtplane.api import labels as wellknown
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstanceSpec
from virtplane.api.kubevirt_v1.volume_sources import PersistentVolumeClaimVolumeSource
from virtplane.api.kubevirt_v1.volumes import Volume

STATE_LABEL = "persistent-state-for"
_NAME_LIMIT = 63


def is_needed(spec: VirtualMachineInstanceSpec) -> bool:
    """Whether firmware variables or TPM state must be kept."""
    tpm, efi = spec.domain.devices.tpm, spec.domain.firmware.bootloader.efi
    return (tpm is not None and bool(tpm.persistent)) or (efi is not None and bool(efi.persistent))


def claim_of(claims: Iterable[JsonObject], name: str) -> JsonObject | None:
    """The state claim of the machine of that name, except one created for a migration target."""
    found = [
        claim
        for claim in claims
        if meta.labels(claim).get(STATE_LABEL) == name and wellknown.MIGRATION_NAME not in meta.labels(claim)
    ]
    return min(found, key=meta.is_being_deleted, default=None)


def volume_name(machine: str) -> str:
    """The name of the volume that stands for the state of that machine."""
    name = f"{STATE_LABEL}-{machine}"
    if len(name) <= _NAME_LIMIT:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: _NAME_LIMIT - 9]}-{digest}"


def volumes_of(vm: VirtualMachine, claims: Mapping[str, JsonObject]) -> list[Volume]:
    """The volumes of the machine's template, and the one of its state where there is a claim for it."""
    volumes = list(vm.spec.instance.volumes)
    claim = claim_of(claims.values(), vm.metadata.name) if is_needed(vm.spec.instance) else None
    if claim is not None:
        source = PersistentVolumeClaimVolumeSource(claim_name=meta.name(claim))
        volumes.append(Volume(name=volume_name(vm.metadata.name), persistent_volume_claim=source))
    return volumes
