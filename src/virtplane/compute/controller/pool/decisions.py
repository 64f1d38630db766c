"""The next actions of a VM pool: pure decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kubecore.json import JsonObject, deep_copy
from kubecore.objects import meta
from kubecore.objects.structs import decode, part, parts
from virtplane.api import labels
from virtplane.api import resources as kinds
from virtplane.api.kubevirt_v1.domain import DomainSpec
from virtplane.api.kubevirt_v1.vm import VirtualMachine, VirtualMachineSpec
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstanceSpec
from virtplane.api.kubevirt_v1.volumes import Volume
from virtplane.api.markers import ApiStruct
from virtplane.api.meta_v1 import ObjectMeta
from virtplane.api.pool_v1beta1.pool import (
    VirtualMachinePool,
    VirtualMachinePoolNameGeneration,
    VirtualMachineTemplateSpec,
)
from virtplane.cluster.objects import described
from virtplane.compute.controller import replicas
from virtplane.compute.controller.pool import healing, rollout, selection
from virtplane.compute.controller.pool.rollout import REVISION_LABEL, Rollout, Templates, revision_name
from virtplane.compute.controller.pool.selection import Around, index_of

FINALIZER = labels.FINALIZER_POOL
BURST = 250


@dataclass(frozen=True, slots=True)
class Step:
    """The VMs to create (by index), to delete, to replace, and to update to the current template."""

    create: tuple[int, ...] = ()
    delete: tuple[VirtualMachine, ...] = ()
    replace: tuple[VirtualMachine, ...] = ()
    """Deleted with their disks; they come back under their names."""
    update: tuple[VirtualMachine, ...] = ()
    rollout: Rollout = field(default_factory=Rollout)


class KeptSpec(ApiStruct, kw_only=True):
    """The part of a pool's spec that a revision keeps."""

    virtual_machine_template: VirtualMachineTemplateSpec


class Revision(ApiStruct, kw_only=True):
    """A ControllerRevision of a pool."""

    metadata: ObjectMeta = ObjectMeta()
    data: KeptSpec


def wanted(pool: VirtualMachinePool) -> int:
    """The wanted number of VMs (1 by default)."""
    return 1 if pool.spec.replicas is None else pool.spec.replicas


def next_step(
    pool: VirtualMachinePool, vms: Sequence[VirtualMachine], templates: Templates, around: Around
) -> Step:
    """What brings the VMs in line; nothing while the pool is paused or being deleted."""
    if pool.metadata.is_being_deleted or pool.spec.paused:
        return Step()
    living = [vm for vm in vms if not vm.metadata.is_being_deleted]
    failing = tuple(healing.failing(pool, living, around.now))
    # One that is being deleted counts until it is gone: its successor gets its name, and its disks.
    missing = wanted(pool) - len(vms)
    if missing <= 0 and len(living) > wanted(pool):
        return Step(delete=tuple(_superfluous(pool, living, around)))
    taken = {index_of(pool, vm) for vm in vms}
    free = [number for number in range(len(taken) + max(0, missing) + 1) if number not in taken]
    create = tuple(free[: min(missing, BURST)]) if missing > 0 else ()
    strategy = pool.spec.update_strategy
    if strategy is not None and strategy.unmanaged is not None:
        return Step(create=create, replace=failing)
    due = rollout.next_rollout(pool, vms, templates, wanted(pool), around)
    replace = tuple({vm.metadata.uid or vm.metadata.name: vm for vm in (*failing, *due.replace)}.values())
    policy = rollout.update_policy(pool)
    meant = [vm for vm in living if vm not in replace and selection.is_meant(policy, vm)]
    update = tuple(vm for vm in meant if rollout.is_outdated(pool, vm, templates))
    return Step(create=create, replace=replace, update=update, rollout=due)


def _superfluous(
    pool: VirtualMachinePool, living: Sequence[VirtualMachine], around: Around
) -> list[VirtualMachine]:
    """The machines that scaling in deletes now."""
    strategy, count = pool.spec.scale_in_strategy, min(len(living) - wanted(pool), BURST)
    if strategy is not None and strategy.unmanaged is not None:
        return []
    if strategy is not None and strategy.opportunistic is not None:
        stopped = [vm for vm in living if rollout.is_stopped(vm, around)]
        return selection.chosen(pool, None, stopped)[:count]
    proactive = strategy.proactive if strategy is not None else None
    return selection.chosen(pool, proactive.selection_policy if proactive else None, living)[:count]


# What a VM gets of the pool's template is copied from the pool's document: a struct would lose what it does
# not know of. `written` is that document, of the very version that `pool` was read from.


def new_machine(pool: VirtualMachinePool, written: JsonObject, number: int) -> JsonObject:
    """The VM with that index."""
    template = pool.spec.virtual_machine_template
    metadata = decode(ObjectMeta, template.metadata or {})
    spec = deep_copy(part(written, VirtualMachinePool, lambda pool: pool.spec.virtual_machine_template.spec))
    if template.spec is not None:
        _set_indexes(template.spec, pool.spec.name_generation, spec, number)
    revision = revision_name(pool)
    inner = spec.setdefault("template", {}).setdefault("metadata", {})
    inner.setdefault("labels", {})[REVISION_LABEL] = revision
    created: JsonObject = {
        "name": f"{pool.metadata.name}-{number}",
        "namespace": pool.metadata.namespace,
        "labels": {**metadata.labels, REVISION_LABEL: revision},
        "ownerReferences": [meta.new_controller_ref(described(pool), kinds.VIRTUAL_MACHINE_POOLS)],
        "finalizers": [FINALIZER],
    }
    if metadata.annotations:
        created["annotations"] = dict(metadata.annotations)
    return {
        "apiVersion": kinds.VIRTUAL_MACHINES.api_version,
        "kind": "VirtualMachine",
        "metadata": created,
        "spec": spec,
    }


def updated_machine(
    pool: VirtualMachinePool, written: JsonObject, vm: VirtualMachine, present: JsonObject
) -> JsonObject:
    """`present`, the document of `vm`, with the pool's present template; what makes it itself stays."""
    number = index_of(pool, vm)
    if number is None:
        return present
    fresh = new_machine(pool, written, number)
    result = deep_copy(present)
    before, after = result["spec"], fresh["spec"]
    result["spec"] = after
    for key in ("runStrategy", "running"):
        if key in before and key not in after:
            after[key] = before[key]
    _keep(vm.spec, before, after)
    result["metadata"].setdefault("labels", {}).update(fresh["metadata"]["labels"])
    return result


def _keep(vm: VirtualMachineSpec, before: JsonObject, after: JsonObject) -> None:
    """Keep the VM's identity, and fields that admission has set."""
    old, new = vm.template.spec, part(after, VirtualMachineSpec, lambda spec: spec.template.spec)
    domain = new.setdefault("domain", {})
    if old is not None:
        firmware = {"uuid": old.domain.firmware.uuid, "serial": old.domain.firmware.serial}
        kept = {key: value for key, value in firmware.items() if value}
        if kept:
            domain["firmware"] = {**kept, **part(domain, DomainSpec, lambda domain: domain.firmware)}
        if old.architecture is not None:
            new.setdefault("architecture", old.architecture)
    instance = part(before, VirtualMachineSpec, lambda spec: spec.template.spec)
    for key, value in part(instance, VirtualMachineInstanceSpec, lambda spec: spec.domain).items():
        if key in ("machine", "resources"):
            domain.setdefault(key, value)
    annotations = decode(ObjectMeta, vm.template.metadata or {}).annotations
    topology = {key: value for key, value in annotations.items() if key.startswith("kubevirt.io/pci-")}
    if topology:
        target = after["template"].setdefault("metadata", {}).setdefault("annotations", {})
        for key, value in topology.items():
            target.setdefault(key, value)


def _set_indexes(
    template: VirtualMachineSpec,
    naming: VirtualMachinePoolNameGeneration | None,
    spec: JsonObject,
    number: int,
) -> None:
    """Give DataVolumes in `spec` names of their own, and config maps and secrets if the pool says so."""
    renamed: dict[str, str] = {}
    disks = parts(spec, VirtualMachineSpec, lambda spec: spec.data_volume_templates)
    for disk, document in zip(template.data_volume_templates, disks, strict=True):
        if disk is not None:
            name = decode(ObjectMeta, disk.metadata or {}).name
            renamed[name] = document["metadata"]["name"] = f"{name}-{number}"
    volumes = template.template.spec.volumes if template.template.spec else ()
    instance = part(spec, VirtualMachineSpec, lambda spec: spec.template.spec)
    documents = parts(instance, VirtualMachineInstanceSpec, lambda spec: spec.volumes)
    naming = naming or VirtualMachinePoolNameGeneration()
    for volume, document in zip(volumes, documents, strict=True):
        _set_index(volume, naming, document, renamed, number)


def _set_index(
    volume: Volume,
    naming: VirtualMachinePoolNameGeneration,
    document: JsonObject,
    renamed: Mapping[str, str],
    number: int,
) -> None:
    claim, data_volume = volume.persistent_volume_claim, volume.data_volume
    if data_volume is not None and data_volume.name in renamed:
        document["dataVolume"]["name"] = renamed[data_volume.name]
    if claim is not None and claim.claim_name in renamed:
        document["persistentVolumeClaim"]["claimName"] = renamed[claim.claim_name]
    if naming.append_index_to_config_map_refs and volume.config_map is not None:
        document["configMap"]["name"] = f"{volume.config_map.name}-{number}"
    if naming.append_index_to_secret_refs and volume.secret is not None:
        document["secret"]["secretName"] = f"{volume.secret.secret_name}-{number}"


def revision_of(pool: VirtualMachinePool, written: JsonObject) -> JsonObject:
    """The ControllerRevision of the pool's current spec."""
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": revision_name(pool),
            "namespace": pool.metadata.namespace,
            "ownerReferences": [meta.new_controller_ref(described(pool), kinds.VIRTUAL_MACHINE_POOLS)],
        },
        "data": deep_copy(part(written, VirtualMachinePool, lambda pool: pool.spec)),
        "revision": pool.metadata.generation,
    }


def next_status(
    pool: VirtualMachinePool,
    vms: Sequence[VirtualMachine],
    selector: str,
    failure: tuple[str, str] | None,
) -> JsonObject:
    """The pool's status; `failure` is reason and message of a failed action."""
    living = [vm for vm in vms if not vm.metadata.is_being_deleted]
    return replicas.next_status(
        pool.status,
        replicas=len(living),
        ready=sum(bool(vm.status and vm.status.ready) for vm in living),
        selector=selector,
        failure=failure,
        pause=("SuccessfulPaused", "Pool controller is paused") if pool.spec.paused else None,
    )
