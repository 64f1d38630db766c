"""Virtual machines, pools and replica sets."""

from __future__ import annotations

from virtplane.api.fields.cdi import DATA_VOLUME
from virtplane.api.fields.instance import DOMAIN, INSTANCE
from virtplane.api.fields.state import Table, acts, copied, prefixed

_INFER = "the volume from which the name is inferred"
_TEMPLATE: Table = {
    "template.metadata": acts("labels and annotations of the instance"),
    **prefixed("template.spec", INSTANCE),
}
_INPUT = "template.spec.domain.devices.autoattachInputDevice"

MACHINE: Table = {
    "dataVolumeTemplates": copied(
        "DataVolumes of the Containerized Data Importer, where it is installed",
        prefixed("spec", DATA_VOLUME),
    ),
    "instancetype.inferFromVolume": acts(_INFER),
    "instancetype.inferFromVolumeFailurePolicy": acts("whether a failed inference is an error"),
    "instancetype.kind": acts("kind of the instance type"),
    "instancetype.name": acts("name of the instance type"),
    "instancetype.revisionName": acts("revision of the instance type"),
    "preference.inferFromVolume": acts(_INFER),
    "preference.inferFromVolumeFailurePolicy": acts("whether a failed inference is an error"),
    "preference.kind": acts("kind of the preference"),
    "preference.name": acts("name of the preference"),
    "preference.revisionName": acts("revision of the preference"),
    "runStrategy": acts("when the instance runs"),
    "running": acts("when the instance runs; deprecated"),
    **_TEMPLATE,
    _INPUT: acts("a tablet where no input is listed"),
    "updateVolumesStrategy": acts("what a change of volumes means", ineffective="Migration"),
}

REPLICA_SET: Table = {
    "paused": acts("the controller rests"),
    "replicas": acts("number of instances"),
    "selector": copied("which instances belong to the set"),
    **_TEMPLATE,
}

PRESET: Table = {
    **prefixed("domain", DOMAIN),
    "selector": copied("which instances get the settings"),
}

POOL: Table = {
    "autohealing": copied("machines that fail to start are replaced"),
    "maxUnavailable": acts("how many guests a changed template restarts at once"),
    "nameGeneration.appendIndexToConfigMapRefs": acts("config maps of their own for the machines"),
    "nameGeneration.appendIndexToSecretRefs": acts("secrets of their own for the machines"),
    "paused": acts("the controller rests"),
    "replicas": acts("number of machines"),
    "scaleInStrategy.opportunistic": copied("only stopped machines go"),
    "scaleInStrategy.proactive.selectionPolicy.selectors": copied("which machines may go"),
    "scaleInStrategy.proactive.selectionPolicy.sortPolicy": acts("which machines go first"),
    "scaleInStrategy.proactive.statePreservation": acts("disks of machines that go stay"),
    "scaleInStrategy.unmanaged": acts("the pool deletes no machine"),
    "selector": copied("which machines belong to the pool"),
    "updateStrategy.opportunistic": acts("machines take the template over at their next restart"),
    "updateStrategy.proactive.selectionPolicy": copied(
        "which machines change, and in which order guests restart"
    ),
    "updateStrategy.unmanaged": acts("machines keep the template that they were made of"),
    "virtualMachineTemplate.metadata": acts("labels and annotations of the machines"),
    **prefixed("virtualMachineTemplate.spec", MACHINE),
}
