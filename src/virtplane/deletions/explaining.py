"""Chooses what is said of a deleted object: the first of its finalizers that something holds up."""

from __future__ import annotations

from dataclasses import replace

from kubecore import resources
from kubecore.json import JsonObject, get_str
from kubecore.objects import meta
from virtplane.api import cdi_names
from virtplane.api import resources as kinds
from virtplane.deletions.holders import Holder, holder_of
from virtplane.deletions.reading import Situation
from virtplane.deletions.waits import WAITING, Wait, deadline, has_passed, later

_SILENT_SECONDS = 60.0
"""A leader that has not renewed its lease for so long does not work."""
_LEASES = {"virt-controller": "virt-controller", "cdi-deployment": cdi_names.LEADER_ELECTION}
_PODS = {
    "virt-controller": "kubevirt.io=virt-controller",
    "cdi-deployment": "cdi.kubevirt.io=cdi-deployment",
    "virt-operator": "kubevirt.io=virt-operator",
    "cdi-operator": "cdi.kubevirt.io=cdi-operator",
}

_FOREGROUND = "foregroundDeletion"
_DEEPEST = 3
_DEPENDENTS = (
    kinds.VIRTUAL_MACHINES,
    kinds.VIRTUAL_MACHINE_INSTANCES,
    kinds.DATA_VOLUMES,
    kinds.VIRTUAL_MACHINE_SNAPSHOT_CONTENTS,
    kinds.VOLUME_SNAPSHOTS,
    resources.PERSISTENT_VOLUME_CLAIMS,
    resources.PODS,
)


async def wait_of(situation: Situation) -> Wait:
    """Why the object is still there. Raises StatusError."""
    found: list[Wait] = []
    for finalizer in meta.finalizers(situation.document):
        holder = holder_of(finalizer)
        at = replace(situation, finalizer=finalizer)
        wait = await _of_holder(at, holder) if holder is not None else _foreign(at)
        found.append(replace(wait, finalizer=finalizer, since=situation.since))
    if not found:
        return Wait("it is about to go", is_expected=True, since=situation.since)
    # What is wrong says more than what goes on as it should.
    best = min(found, key=lambda wait: wait.is_expected)
    if best.is_up_to_component and not situation.is_reporting:
        said = await situation.told(reason=WAITING)
        return replace(best, why=f"{best.why}; it said last: {said}" if said else best.why)
    return best


async def _of_holder(situation: Situation, holder: Holder) -> Wait:
    rule = _of_dependents if situation.finalizer == _FOREGROUND else holder.rule
    wait = await rule(situation) if rule is not None else None
    if wait is not None:
        return wait
    wait = await _of_component(situation, holder)
    if wait.unsafe:
        return wait
    ends = deadline(situation.since)
    if holder.unbounded:
        return replace(wait, unsafe=holder.unbounded)
    if has_passed(later(ends, _SILENT_SECONDS), situation.now):
        late = f"its deadline was {ends}, and taking the finalizer off does not succeed either"
        return replace(wait, unsafe=late, is_expected=False)
    return replace(wait, until=ends)


async def _of_dependents(situation: Situation) -> Wait | None:
    """Who deletes in the foreground waits for what the object owns. Raises StatusError."""
    for kind in _DEPENDENTS:
        for document in await situation.listed(kind, situation.namespace):
            if not _blocks(document, situation.document):
                continue
            name = f"{kind.kind} {meta.name(document)}"
            if not meta.is_being_deleted(document):
                return Wait(
                    f"{name} belongs to it, and has not been deleted yet",
                    f"kubectl delete {kind.plural} {meta.name(document)}{situation.within}",
                    unsafe="it was asked to go after what belongs to it",
                )
            if situation.depth < _DEEPEST and meta.finalizers(document):
                wait = await wait_of(situation.of(kind, document))
                return Wait(
                    f"{name}, which belongs to it, waits: {wait.why}",
                    wait.advice,
                    wait.until,
                    wait.unsafe,
                    wait.is_expected,
                )
            return Wait(f"{name}, which belongs to it, is being deleted", is_expected=True)
    return None


def _blocks(document: JsonObject, owner: JsonObject) -> bool:
    return any(
        reference.get("uid") == meta.uid(owner) and reference.get("blockOwnerDeletion")
        for reference in meta.owner_references(document)
    )


async def _of_component(situation: Situation, holder: Holder) -> Wait:
    """Nothing is in the way but the component itself: it is refused, or it does not work."""
    component = holder.component
    if situation.failure:
        return Wait(
            f"{component} tries again and again: {situation.failure.rstrip('.')}", _remedy(situation.failure)
        )
    silent = await _silence(situation, component)
    if silent:
        labelled = _PODS[component]
        advice = f"start it again: kubectl get deployments,pods -A -l {labelled}"
        why = f"{component}, which takes {situation.finalizer} off, has not worked since {silent}"
        return Wait(why, advice, unsafe="nobody is there to end it")
    why = f"{component} is about to take {situation.finalizer} off"
    return Wait(why, is_expected=True, is_up_to_component=True)


async def _silence(situation: Situation, component: str) -> str:
    """Since when a component has not worked; empty where it does, or where that may not be read."""
    name = _LEASES.get(component)
    if name is None:
        return ""
    leases = await situation.listed(resources.LEASES, having=f"metadata.name={name}")
    renewed = max((get_str(each, "spec", "renewTime") for each in leases), default="")
    return renewed if has_passed(later(renewed, _SILENT_SECONDS), situation.now) else ""


def _remedy(failure: str) -> str:
    if "webhook" in failure:
        return (
            "repair or remove the webhook that refuses:"
            " kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations"
        )
    if "ValidatingAdmissionPolicy" in failure:
        return "see what refuses: kubectl get validatingadmissionpolicies"
    if "forbidden" in failure.lower():
        return "give it the right, or the quota the room, that the message names"
    return ""


def _foreign(situation: Situation) -> Wait:
    kind, finalizer = situation.kind, situation.finalizer
    path = f"/metadata/finalizers/{meta.finalizers(situation.document).index(finalizer)}"
    operations = f'[{{"op":"test","path":"{path}","value":"{finalizer}"}},{{"op":"remove","path":"{path}"}}]'
    group = f".{kind.group}" if kind.group else ""
    return Wait(
        f"finalizer {finalizer} is on it, which no component of this product or of Kubernetes sets",
        "who set it must take it off; once its work does not matter: kubectl patch"
        f" {kind.plural}{group} {situation.name}{situation.within} --type=json -p '{operations}'",
        unsafe="only who set it knows what it is for",
    )
