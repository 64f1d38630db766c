"""Why disks of a machine are not there: claims that are missing or unbound, content that is not loaded."""

from __future__ import annotations

from collections.abc import Iterator

from kubecore.json import JsonObject
from kubecore.objects.structs import encode
from virtplane.api.cdi_v1beta1.data_volume import DataVolume
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.cli.virtctl.explaining.answer import Answer, Change
from virtplane.cli.virtctl.explaining.facts import Facts

_DONE = ("Succeeded", "PendingPopulation")


def missing_claim(facts: Facts) -> Answer | None:
    """The first volume without a claim."""
    for index, name in facts.volumes:
        if name not in facts.claims and name not in facts.data_volumes:
            advice = (
                f"make the claim (kubectl create -f), or name another: kubectl get pvc -n {_namespace(facts)}"
            )
            return Answer(
                f"it waits for the claim {name}, which does not exist in {_namespace(facts)}.",
                (Change(_field(facts, index), name, advice),),
            )
    return None


def failed_content(facts: Facts) -> Answer | None:
    """The first disk whose content could not be loaded."""
    for name, data_volume in facts.data_volumes.items():
        message = _running(data_volume)
        if data_volume.status.phase == "Failed" or message:
            text = message or "it does not say why"
            tries = (
                f", after {data_volume.status.restart_count} restarts"
                if data_volume.status.restart_count
                else ""
            )
            return Answer(
                f"its disk {name} cannot be filled{tries}: {text}.", tuple(_sources(facts, data_volume))
            )
    return None


def loading_content(facts: Facts) -> Answer | None:
    """The first disk that is being filled."""
    for name, data_volume in facts.data_volumes.items():
        status = data_volume.status
        if status.phase in _DONE:
            continue
        claim = facts.claims.get(name)
        if claim is not None and claim.status.phase != "Bound":
            return _unbound(facts, name, claim)
        progress = f", {status.progress} done" if status.progress not in ("", "N/A") else ""
        restarts = f", {status.restart_count} restarts" if status.restart_count else ""
        said = f"it waits until its disk {name} is filled ({status.phase or 'not begun'}{progress}{restarts})"
        why = next(
            (each.message for each in status.conditions if each.type == "Running" and each.message), ""
        )
        return Answer(f"{said}: {why}." if why else f"{said}.")
    return None


def unbound_claim(facts: Facts) -> Answer | None:
    """The first claim without a volume."""
    for _, name in facts.volumes:
        claim = facts.claims.get(name)
        if claim is not None and claim.status.phase != "Bound":
            return _unbound(facts, name, claim)
    return None


def _unbound(facts: Facts, name: str, claim: PersistentVolumeClaim) -> Answer:
    spec = claim.spec
    size = str((spec.resources.requests if spec.resources else {}).get("storage", ""))
    storage_class = spec.storage_class_name
    of_class = f"of the class {storage_class}" if storage_class else "without a storage class"
    warning = facts.warnings.get(claim.metadata.uid, "")
    ending = f": {warning}" if warning else ", which nobody has provided yet"
    advice = "name a class that exists (kubectl get storageclass), ask for less, or make room in it"
    return Answer(
        f"it waits for a volume of {size} {of_class} for its claim {name}{ending}.",
        (Change(f"PersistentVolumeClaim/{name} spec.storageClassName", storage_class or "", advice),),
    )


def _running(data_volume: DataVolume) -> str:
    """Why nothing fills the disk; empty if that goes well."""
    for each in data_volume.status.conditions:
        if (each.type, each.status) == ("Running", "False") and each.reason in ("Error", "ImagePullFailed"):
            return (each.message or each.reason or "").rstrip(".")
    return ""


def _sources(facts: Facts, data_volume: DataVolume) -> Iterator[Change]:
    """The fields that say where the content comes from."""
    name = data_volume.metadata.name
    prefix = f"DataVolume/{name} spec"
    for index, template in enumerate(facts.vm.spec.data_volume_templates):
        if template is not None and (template.metadata or {}).get("name") == name:
            prefix = f"spec.dataVolumeTemplates[{index}].spec"
    source: JsonObject = encode(data_volume.spec.source) if data_volume.spec.source is not None else {}
    for kind, content in source.items():
        url = content.get("url", "") if isinstance(content, dict) else ""
        field = f"{prefix}.source.{kind}.url" if url else f"{prefix}.source.{kind}"
        advice = f"correct it, then delete the DataVolume: kubectl delete dv {name} -n {_namespace(facts)}"
        yield Change(field, str(url), advice)


def _field(facts: Facts, index: int) -> str:
    volume = facts.vm.spec.instance.volumes[index]
    member = "dataVolume.name" if volume.data_volume is not None else "persistentVolumeClaim.claimName"
    return f"spec.template.spec.volumes[{index}].{member}"


def _namespace(facts: Facts) -> str:
    return facts.vm.metadata.namespace
