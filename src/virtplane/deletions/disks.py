"""What the finalizers of claims, volumes and their snapshots wait for."""

from __future__ import annotations

from kubecore import resources
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import meta
from virtplane.api import resources as kinds
from virtplane.deletions.pods import guest_of, of_pod, out_of_service
from virtplane.deletions.reading import Situation
from virtplane.deletions.waits import Wait

_FINISHED = ("Succeeded", "Failed")
_LEFT_OVER = "its storage would be left over, and nobody would know of it"


async def of_used_claim(situation: Situation) -> Wait | None:
    """A claim waits until no pod uses it. Raises StatusError."""
    pods = await situation.listed(resources.PODS, situation.namespace)
    users = [pod for pod in pods if _uses(pod, situation.name)]
    for pod in users:
        wait = await of_pod(situation, pod)
        if wait is not None:
            return wait
    if not users:
        return None
    pod = users[0]
    guest, name = guest_of(pod), meta.name(pod)
    others = f" and {len(users) - 1} others" if len(users) > 1 else ""
    if not guest:
        why = f"pod {name}{others} uses it"
        return Wait(why, f"kubectl delete pod {name}{situation.within}", unsafe="the pod writes to it")
    advice = f"virtctl stop {guest}{situation.within}"
    if meta.labels(pod).get("kubevirt.io") == "hotplug-disk":
        advice = f"virtctl removevolume {guest} --volume-name=VOLUME{situation.within}, or {advice}"
    return Wait(f"guest {guest}{others} uses it (pod {name})", advice, unsafe="the guest writes to it")


def _uses(pod: JsonObject, claim: str) -> bool:
    if get_str(pod, "status", "phase") in _FINISHED:
        return False
    volumes = get_list(pod, "spec", "volumes")
    return any(get_str(each, "persistentVolumeClaim", "claimName") == claim for each in volumes) or any(
        "ephemeral" in each and f"{meta.name(pod)}-{each.get('name')}" == claim for each in volumes
    )


async def of_bound_volume(situation: Situation) -> Wait | None:
    """A volume waits for its claim. Raises StatusError."""
    reference = get_object(situation.document, "spec", "claimRef")
    name, namespace = get_str(reference, "name"), get_str(reference, "namespace")
    if get_str(situation.document, "status", "phase") != "Bound":
        return None
    return Wait(
        f"claim {namespace}/{name} is bound to it",
        f"delete the claim, with its data: kubectl delete pvc {name} -n {namespace}",
        unsafe="the claim would lose its data",
    )


async def of_copied_claim(situation: Situation) -> Wait | None:
    """A claim waits for the copies that are being made of it. Raises StatusError."""
    return await _of_source(situation, "PersistentVolumeClaim")


async def of_restored_snapshot(situation: Situation) -> Wait | None:
    """A snapshot waits for the claims that are being restored from it. Raises StatusError."""
    return await _of_source(situation, kinds.VOLUME_SNAPSHOTS.kind)


async def _of_source(situation: Situation, kind: str) -> Wait | None:
    for claim in await situation.listed(resources.PERSISTENT_VOLUME_CLAIMS):
        is_pending = get_str(claim, "status", "phase") in ("", "Pending")
        if is_pending and _names(claim, kind, situation.name, situation.namespace):
            return await _of_copy(situation, claim)
    return None


async def _of_copy(situation: Situation, claim: JsonObject) -> Wait:
    unsafe = "the copy would be incomplete"
    name, namespace = meta.name(claim), meta.namespace(claim)
    if situation.is_reporting and namespace != situation.namespace:
        # Whoever reads events here may not know what is in other namespaces.
        ask = f"virtctl explain-status {situation.kind.plural}/{situation.name}{situation.within}"
        advice = f"somebody who may see all claims is told which: {ask}"
        return Wait("a claim of another namespace is being made of it", advice, unsafe=unsafe)
    said = await situation.told(claim)
    why = f"claim {namespace}/{name} is being made of it" + (f" ({said})" if said else "")
    return Wait(why, f"to do without the copy: kubectl delete pvc {name} -n {namespace}", unsafe=unsafe)


def _names(claim: JsonObject, kind: str, name: str, namespace: str) -> bool:
    spec = get_object(claim, "spec")
    for source in (spec.get("dataSource") or {}, spec.get("dataSourceRef") or {}):
        where = source.get("namespace") or meta.namespace(claim)
        if (source.get("kind"), source.get("name"), where) == (kind, name, namespace):
            return True
    return False


async def of_snapshotted_claim(situation: Situation) -> Wait | None:
    """A claim waits for the snapshots that are being taken of it. Raises StatusError."""
    for snapshot in await situation.listed(kinds.VOLUME_SNAPSHOTS, situation.namespace):
        source = get_str(snapshot, "spec", "source", "persistentVolumeClaimName")
        if source != situation.name or get_str(snapshot, "status", "creationTime"):
            continue
        name, said = meta.name(snapshot), get_str(snapshot, "status", "error", "message")
        return Wait(
            f"snapshot {name} of it is being taken" + (f" ({said})" if said else ""),
            f"to do without the snapshot: kubectl delete volumesnapshot {name}{situation.within}",
            unsafe="the snapshot would be incomplete",
        )
    return None


async def of_snapshot(situation: Situation) -> Wait | None:
    """A snapshot waits until its driver has deleted it. Raises StatusError."""
    name = get_str(situation.document, "status", "boundVolumeSnapshotContentName")
    content = await situation.found(kinds.VOLUME_SNAPSHOT_CONTENTS, name)
    return (
        await of_snapshot_content(situation.of(kinds.VOLUME_SNAPSHOT_CONTENTS, content)) if content else None
    )


async def of_snapshot_content(situation: Situation) -> Wait | None:
    """A snapshot's content waits until its driver has deleted the snapshot. Raises StatusError."""
    driver = get_str(situation.document, "spec", "driver")
    said = get_str(situation.document, "status", "error", "message") or await situation.told()
    if not said:
        return None
    return Wait(f"driver {driver} has not deleted it ({said})", _see_driver(driver), unsafe=_LEFT_OVER)


async def of_storage(situation: Situation) -> Wait | None:
    """A volume waits until its driver has deleted its storage. Raises StatusError."""
    attached = await of_attachment(situation)
    if attached is not None:
        return attached
    driver = get_str(situation.document, "spec", "csi", "driver")
    said = await situation.told()
    if not said:
        return None
    why = f"driver {driver} has not deleted its storage ({said})"
    return Wait(why, _see_driver(driver), unsafe=_LEFT_OVER)


async def of_created_storage(situation: Situation) -> Wait | None:
    """A claim waits until its driver has said whether it made the volume. Raises StatusError."""
    said = await situation.told()
    why = "its driver was asked for a volume, and has not said whether there is one"
    return Wait(why + (f" ({said})" if said else ""), _see_driver(""), unsafe=_LEFT_OVER)


async def of_attachment(situation: Situation) -> Wait | None:
    """A volume waits until it is detached from all nodes. Raises StatusError."""
    attachments = (
        [situation.document]
        if situation.kind == resources.VOLUME_ATTACHMENTS
        else [
            each
            for each in await situation.listed(resources.VOLUME_ATTACHMENTS)
            if get_str(each, "spec", "source", "persistentVolumeName") == situation.name
        ]
    )
    for attachment in attachments:
        node = get_str(attachment, "spec", "nodeName")
        said = get_str(attachment, "status", "detachError", "message")
        return Wait(
            f"it is attached to node {node}" + (f" ({said})" if said else ""),
            f"see whether the node works and what uses it: kubectl get node {node}; once it is certainly off:"
            f" {out_of_service(node)}",
            unsafe="the node may still write to it",
        )
    return None


def _see_driver(driver: str) -> str:
    return f"see what its controller says: kubectl get pods -A; kubectl get csidriver {driver}".rstrip()
