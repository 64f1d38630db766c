"""Fields of instance types, preferences, machines and groups of them that act change what is made of them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.support import every_field

import virtplane
from kubecore.json import JsonObject, deep_copy
from kubecore.objects.structs import decode
from virtplane.api.clone_v1beta1.clone import VirtualMachineClone
from virtplane.api.fields import operations
from virtplane.api.fields.instance import INSTANCE
from virtplane.api.fields.instancetypes import INSTANCETYPE, PREFERENCE
from virtplane.api.fields.machine import MACHINE, POOL, PRESET, REPLICA_SET
from virtplane.api.fields.state import Field, State, Table
from virtplane.api.instancetype_v1beta1.instancetype import VirtualMachineInstancetypeSpec
from virtplane.api.instancetype_v1beta1.preference import VirtualMachinePreferenceSpec
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstanceSpec
from virtplane.api.pool_v1beta1.pool import VirtualMachinePool
from virtplane.api.snapshot_v1beta1.snapshot import SnapshotVirtualMachine
from virtplane.compute.controller.pool import decisions as pooling
from virtplane.compute.controller.pool import preservation, rollout
from virtplane.compute.controller.pool.selection import Around
from virtplane.instancetypes.apply import apply
from virtplane.instancetypes.requirements import unmet_requirement
from virtplane.storage.clone import decisions as cloning

_TYPE: JsonObject = {
    "annotations": {"a": "b"},
    "cpu": {
        "guest": 8,
        "dedicatedCPUPlacement": True,
        "isolateEmulatorThread": True,
        "maxSockets": 16,
        "model": "Penryn",
        "numa": {"guestMappingPassthrough": {}},
        "realtime": {"mask": "0-1"},
    },
    "gpus": [{"name": "gpu", "deviceName": "vendor.com/gpu"}],
    "hostDevices": [{"name": "card", "deviceName": "vendor.com/card"}],
    "ioThreads": {"supplementalPoolThreadCount": 2},
    "launchSecurity": {"sev": {"dhCert": "a", "session": "b", "policy": {"encryptedState": True}}},
    "ioThreadsPolicy": "supplementalPool",
    "memory": {
        "guest": "8Gi",
        "hugepages": {"pageSize": "1Gi"},
        "maxGuest": "16Gi",
        "overcommitPercent": 50,
    },
    "nodeSelector": {"disk": "fast"},
    "schedulerName": "other",
}

_ON = {"enabled": True}
_SWITCHES = (
    *("evmcs", "frequencies", "ipi", "reenlightenment", "relaxed", "reset", "runtime", "synic", "tlbflush"),
    *("vapic", "vpindex"),
)
_PREFERENCE: JsonObject = {
    "annotations": {"a": "b"},
    "clock": {
        "preferredClockOffset": {"utc": {"offsetSeconds": 1}},
        "preferredTimer": {"hpet": {"present": False}},
    },
    "cpu": {
        "preferredCPUFeatures": [{"name": "apic"}],
        "preferredCPUTopology": "spread",
        "spreadOptions": {"across": "SocketsCores", "ratio": 4},
    },
    "devices": {
        "preferredAutoattachGraphicsDevice": False,
        "preferredAutoattachInputDevice": True,
        "preferredAutoattachMemBalloon": False,
        "preferredAutoattachPodInterface": False,
        "preferredAutoattachSerialConsole": False,
        "preferredBlockMultiQueue": True,
        "preferredCdromBus": "usb",
        "preferredDisableHotplug": True,
        "preferredDiskBlockSize": {"matchVolume": {}},
        "preferredDiskBus": "virtio",
        "preferredDiskCache": "none",
        "preferredDiskDedicatedIoThread": True,
        "preferredDiskIO": "native",
        "preferredInputBus": "usb",
        "preferredInputType": "tablet",
        "preferredInterfaceMasquerade": {},
        "preferredNetworkInterfaceMultiQueue": True,
        "preferredInterfaceModel": "e1000e",
        "preferredLunBus": "sata",
        "preferredRng": {},
        "preferredPanicDeviceModel": "pvpanic",
        "preferredSoundModel": "ac97",
        "preferredTPM": {"enabled": True, "persistent": True},
        "preferredUseVirtioTransitional": True,
        "preferredVideoType": "virtio",
        "preferredVirtualGPUOptions": {"display": {"enabled": False}},
    },
    "features": {
        "preferredAcpi": _ON,
        "preferredApic": {"enabled": True, "endOfInterrupt": True},
        "preferredHyperv": {
            **dict.fromkeys(_SWITCHES, _ON),
            "spinlocks": {"enabled": True, "spinlocks": 8191},
            "synictimer": {"enabled": True, "direct": _ON},
            "vendorid": {"enabled": True, "vendorid": "me"},
        },
        "preferredKvm": {"hidden": True},
        "preferredPvspinlock": _ON,
        "preferredSmm": _ON,
    },
    "firmware": {"preferredEfi": {"persistent": True, "secureBoot": True}},
    "machine": {"preferredMachineType": "pc-q35-7.2"},
    "preferredArchitecture": "amd64",
    "preferredLaunchSecurity": {"sev": {"dhCert": "a", "session": "b", "policy": {"encryptedState": True}}},
    "preferredSubdomain": "sub",
    "preferredTerminationGracePeriodSeconds": 5,
    "requirements": {"architecture": "s390x"},
}
_PREFERENCES: list[list[every_field.Change]] = [
    [("clock.preferredClockOffset", {"timezone": "Europe/Berlin"})],
    [("cpu.spreadOptions", {"across": "CoresThreads"})],
    [("devices.preferredAutoattachGraphicsDevice", True)],
    [("cpu.spreadOptions", {}), ("preferSpreadSocketToCoreRatio", 4)],
    [("firmware", {"preferredUseBios": True, "preferredUseBiosSerial": True})],
    [("firmware", {"preferredUseEfi": True, "preferredUseSecureBoot": False})],
    [("requirements", {"cpu": {"guest": 64}})],
    [("requirements", {"memory": {"guest": "64Gi"}})],
]

READ_BY: dict[str, dict[str, tuple[str, str]]] = {
    "VirtualMachinePreference": {
        "volumes.preferredStorageClassName": (
            "compute/apiserver/admission/kinds/matching.py",
            ".preferred_storage_class_name",
        ),
    },
    "VirtualMachine": {
        "dataVolumeTemplates": ("compute/controller/vm/datavolumes.py", "spec.data_volume_templates"),
        "runStrategy": ("compute/controller/vm/strategy.py", "spec.run_strategy"),
        "running": ("compute/controller/vm/strategy.py", "spec.running"),
        "template.metadata": ("compute/controller/vm/starting.py", "spec.template.metadata"),
        "template.spec.domain.devices.autoattachInputDevice": (
            "compute/controller/vm/starting.py",
            ".autoattach_input_device",
        ),
        "updateVolumesStrategy": ("compute/controller/vm/running.py", "spec.update_volumes_strategy"),
        **{
            f"{matcher}.{field}": place
            for matcher in ("instancetype", "preference")
            for field, place in {
                "inferFromVolume": ("compute/apiserver/admission/kinds/inference.py", ".infer_from_volume"),
                "inferFromVolumeFailurePolicy": (
                    "compute/apiserver/admission/kinds/inference.py",
                    ".infer_from_volume_failure_policy",
                ),
                "kind": ("instancetypes/references.py", ".kind"),
                "name": ("instancetypes/references.py", ".name"),
                "revisionName": ("instancetypes/references.py", ".revision_name"),
            }.items()
        },
    },
    "VirtualMachineInstanceReplicaSet": {
        "paused": ("compute/controller/replicaset/decisions.py", "spec.paused"),
        "replicas": ("compute/controller/replicaset/decisions.py", "spec.replicas"),
        "selector": ("compute/controller/replicaset/reconciler.py", "spec.selector"),
        "template.metadata": ("compute/controller/replicaset/decisions.py", "spec.template.metadata"),
    },
    "VirtualMachineInstancePreset": {
        "selector": ("compute/apiserver/admission/mutation/presets.py", '"selector"'),
    },
    "VirtualMachinePool": {
        "autohealing": ("compute/controller/pool/healing.py", "spec.autohealing"),
        "maxUnavailable": ("compute/controller/pool/rollout.py", "spec.max_unavailable"),
        "scaleInStrategy.opportunistic": ("compute/controller/pool/decisions.py", "strategy.opportunistic"),
        "scaleInStrategy.proactive.selectionPolicy.selectors": (
            "compute/controller/pool/selection.py",
            "policy.selectors",
        ),
        "selector": ("compute/controller/pool/reconciler.py", "spec.selector"),
        "updateStrategy.proactive.selectionPolicy": (
            "compute/controller/pool/rollout.py",
            "proactive.selection_policy",
        ),
    },
    "VirtualMachineInstanceMigration": {
        "addedNodeSelector": ("compute/controller/migration/target.py", "spec.added_node_selector"),
        "priority": ("compute/controller/migration/reconciler.py", "spec.priority"),
        "vmiName": ("compute/controller/migration/reconciler.py", "spec.vmi_name"),
    },
    "VirtualMachineSnapshot": {
        "deletionPolicy": ("storage/snapshot/reconciler.py", "spec.deletion_policy"),
        "failureDeadline": ("storage/snapshot/decisions.py", "spec.deadline_seconds"),
        "source": ("storage/snapshot/reconciler.py", "spec.source"),
    },
    "VirtualMachineRestore": {
        "patches": ("storage/restore/decisions.py", "spec.patches"),
        "target": ("storage/restore/decisions.py", "spec.target"),
        "targetReadinessPolicy": ("storage/restore/reconciler.py", "spec.target_readiness_policy"),
        "volumeOwnershipPolicy": ("storage/restore/claims.py", "spec.volume_ownership_policy"),
        "virtualMachineSnapshotName": (
            "storage/restore/reconciler.py",
            "spec.virtual_machine_snapshot_name",
        ),
        "volumeRestoreOverrides[].annotations": ("storage/restore/decisions.py", "override.annotations"),
        "volumeRestoreOverrides[].labels": ("storage/restore/decisions.py", "override.labels"),
        "volumeRestoreOverrides[].restoreName": (
            "storage/restore/decisions.py",
            ".restore_name",
        ),
        "volumeRestoreOverrides[].volumeName": ("storage/restore/decisions.py", ".volume_name"),
        "volumeRestorePolicy": ("storage/restore/decisions.py", "spec.volume_restore_policy"),
    },
}
"""Fields whose effect no pure function shows, and the code that reads them."""


def _machine() -> JsonObject:
    """A template that leaves open what types and preferences give."""
    disks = [{"name": "a", "disk": {}}, {"name": "b", "cdrom": {}}, {"name": "c", "lun": {}}]
    devices = {
        "disks": disks,
        "inputs": [{"name": "i", "type": ""}],
        "interfaces": [{"name": "default"}],
        "sound": {"name": "s"},
    }
    return {"domain": {"devices": devices}, "networks": [{"name": "default", "pod": {}}]}


def _applied(instancetype: JsonObject, preference: JsonObject | None = None) -> JsonObject:
    spec = _machine()
    if preference is not None:
        spec["domain"]["devices"]["gpus"] = [{"name": "g", "deviceName": "vendor.com/gpu"}]
    metadata: JsonObject = {"annotations": {}}
    apply(
        spec,
        metadata,
        decode(VirtualMachineInstancetypeSpec, instancetype),
        decode(VirtualMachinePreferenceSpec, preference) if preference is not None else None,
    )
    return {"spec": spec, "metadata": metadata}


def test_every_field_of_an_instance_type_that_acts_changes_the_machine() -> None:
    assert every_field.silent(INSTANCETYPE, [_TYPE], [_applied]) == []


def test_every_field_of_a_preference_that_acts_changes_the_machine() -> None:
    def preferred(preference: JsonObject) -> JsonObject:
        return _applied({"cpu": {"guest": 8}, "memory": {"guest": "8Gi"}}, preference)

    def unmet(preference: JsonObject) -> str:
        given = VirtualMachineInstanceSpec(architecture="amd64")
        found = unmet_requirement(given, None, decode(VirtualMachinePreferenceSpec, preference))
        return found.problem if found is not None else ""

    preferred(deep_copy(_PREFERENCE))
    samples = every_field.documents(_PREFERENCE, _PREFERENCES)
    left = every_field.silent(PREFERENCE, samples, [preferred, unmet])
    assert set(left) == set(READ_BY["VirtualMachinePreference"])


_POOL: JsonObject = {
    "nameGeneration": {"appendIndexToConfigMapRefs": True, "appendIndexToSecretRefs": True},
    "replicas": 3,
    "selector": {"matchLabels": {"app": "a"}},
    "scaleInStrategy": {
        "proactive": {"selectionPolicy": {"sortPolicy": "DescendingOrder"}, "statePreservation": "Offline"}
    },
    "virtualMachineTemplate": {
        "metadata": {"labels": {"app": "a"}},
        "spec": {
            "template": {
                "spec": {
                    "volumes": [
                        {"name": "m", "configMap": {"name": "m"}},
                        {"name": "s", "secret": {"secretName": "s"}},
                    ]
                }
            }
        },
    },
}
_POOLS: list[list[every_field.Change]] = [
    [("paused", True)],
    [("replicas", 1)],
    [("replicas", 1), ("scaleInStrategy", {"unmanaged": {}})],
    [("updateStrategy", {"unmanaged": {}})],
    [("updateStrategy", {"opportunistic": {}})],
]


def test_every_field_of_a_pool_that_acts_changes_what_the_pool_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.sample", lambda machines, count: list(machines)[:count])

    def pool(spec: JsonObject, generation: int = 2) -> VirtualMachinePool:
        metadata = {"name": "p", "namespace": "n", "uid": "u", "generation": generation}
        return decode(VirtualMachinePool, {"metadata": metadata, "spec": spec})

    def machine(spec: JsonObject) -> JsonObject:
        return pooling.new_machine(pool(spec), {"spec": spec}, 7)

    def step(spec: JsonObject) -> pooling.Step:
        former = {**_POOL, "virtualMachineTemplate": {"spec": {"template": {}}}}
        old = pool(former, 1)
        present = [pooling.new_machine(old, {"spec": former}, number) for number in (0, 1)]
        templates = {"p-1": old.spec.virtual_machine_template}
        around = Around(datetime(2026, 1, 1, tzinfo=UTC))
        return pooling.next_step(
            pool(spec), [decode(VirtualMachine, vm) for vm in present], templates, around
        )

    def choices(spec: JsonObject) -> tuple[bool, bool]:
        return preservation.keeps_disks(pool(spec)), rollout.is_automatic(pool(spec))

    own: Table = {path: field for path, field in POOL.items() if "Template.spec" not in path}
    left = every_field.silent(own, every_field.documents(_POOL, _POOLS), [machine, step, choices])
    assert set(left) == set(READ_BY["VirtualMachinePool"])


def test_every_field_of_a_clone_that_acts_changes_the_copy() -> None:
    clone: JsonObject = {
        "annotationFilters": ["a"],
        "labelFilters": ["a"],
        "newMacAddresses": {"default": "02:00:00:00:00:01"},
        "newSMBiosSerial": "s",
        "patches": ['{"op": "add", "path": "/metadata/labels/x", "value": "y"}'],
        "source": {"kind": "VirtualMachine", "name": "from"},
        "target": {"name": "to"},
        "template": {"annotationFilters": ["a"], "labelFilters": ["a"]},
        "volumeNamePolicy": "PrefixTargetName",
    }
    own = {"labels": {"a": "1", "b": "2"}, "annotations": {"a": "1", "b": "2"}}
    devices = {"interfaces": [{"name": "default", "macAddress": "02:00:00:00:00:09"}]}
    inner = {"metadata": own, "spec": {"domain": {"devices": devices}}}
    source: JsonObject = {"metadata": own, "spec": {"template": inner}}

    def restore(spec: JsonObject) -> JsonObject:
        metadata = {"name": "c", "namespace": "n", "uid": "u"}
        clone = decode(VirtualMachineClone, {"metadata": metadata, "spec": spec})
        return cloning.new_restore(clone, decode(SnapshotVirtualMachine, source))

    samples = every_field.documents(clone, [[("target", None)]])
    assert every_field.silent(operations.CLONE, samples, [restore]) == []


def _is_instances(path: str, field: Field) -> bool:
    """Whether the entry is that of the template's instance."""
    return INSTANCE.get(path.removeprefix("template.spec.")) == field


@pytest.mark.parametrize(
    ("kind", "table"),
    [
        (
            "VirtualMachine",
            {path: field for path, field in MACHINE.items() if not _is_instances(path, field)},
        ),
        (
            "VirtualMachineInstanceReplicaSet",
            {path: field for path, field in REPLICA_SET.items() if "template.spec" not in path},
        ),
        (
            "VirtualMachineInstancePreset",
            {path: field for path, field in PRESET.items() if not path.startswith("domain.")},
        ),
        ("VirtualMachineInstanceMigration", operations.MIGRATION),
        ("VirtualMachineSnapshot", operations.SNAPSHOT),
        ("VirtualMachineRestore", operations.RESTORE),
    ],
)
def test_fields_that_controllers_act_upon_are_all_named(kind: str, table: Table) -> None:
    assert {path for path, field in table.items() if field.state is State.ACTS} == set(READ_BY[kind])


@pytest.mark.parametrize("kind", READ_BY)
def test_fields_whose_effect_cannot_be_shown_are_read(kind: str) -> None:
    root = Path(virtplane.__file__).parent
    found = {path: text in (root / place).read_text() for path, (place, text) in READ_BY[kind].items()}
    assert [path for path, is_read in found.items() if not is_read] == []
