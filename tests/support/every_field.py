"""Documents in which every field that acts is set, and what becomes of a document when one is not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from kubecore.json import JsonObject, deep_copy
from kubecore.objects.structs import UnfitDocument
from virtplane.api.fields.state import State, Table

_PORT_RANGE = {"start": 5000, "end": 5009, "protocol": "UDP"}
_PROBE: JsonObject = {"httpGet": {"port": 80}, "initialDelaySeconds": 5}
_INIT = {"networkData": "version: 2", "secretRef": {"name": "s"}, "networkDataSecretRef": {"name": "n"}}
_ON: JsonObject = {"enabled": False}

DEVICES: JsonObject = {
    "autoattachGraphicsDevice": True,
    "autoattachMemBalloon": False,
    "autoattachSerialConsole": True,
    "autoattachVSOCK": True,
    "blockMultiQueue": True,
    "clientPassthrough": {},
    "disableHotplug": True,
    "downwardMetrics": {},
    "filesystems": [{"name": "shared", "virtiofs": {}}],
    "gpus": [
        {
            "name": "gpu",
            "deviceName": "vendor.com/gpu",
            "tag": "compute",
            "virtualGPUOptions": {"display": {"ramFB": {"enabled": False}}},
        }
    ],
    "hostDevices": [{"name": "card", "deviceName": "vendor.com/card", "tag": "crypto"}],
    "disks": [
        {
            "name": "container",
            "disk": {"bus": "virtio", "readonly": True, "pciAddress": "0000:0a:00.0"},
            "blockSize": {"custom": {"logical": 512, "physical": 4096, "discardGranularity": 4096}},
            "bootOrder": 2,
            "cache": "writeback",
            "io": "threads",
            "errorPolicy": "report",
            "serial": "4711",
            "dedicatedIOThread": True,
            "tag": "system",
        },
        {"name": "claim", "lun": {"bus": "sata", "readonly": True, "reservation": True}},
        {"name": "layer", "disk": {"bus": "scsi"}, "shareable": True},
        {"name": "cd", "cdrom": {"bus": "usb", "readonly": False, "tray": "open"}},
    ],
    "inputs": [{"name": "pointer", "bus": "virtio", "type": "keyboard"}],
    "interfaces": [
        {
            "name": "default",
            "masquerade": {},
            "acpiIndex": 7,
            "bootOrder": 1,
            "pciAddress": "0000:0b:00.0",
            "macAddress": "02:00:00:00:00:07",
            "model": "e1000e",
            "ports": [{"name": "http", "port": 80, "protocol": "UDP"}],
            "state": "down",
            "tag": "uplink",
            "dhcpOptions": {
                "bootFileName": "boot",
                "ntpServers": ["10.0.0.9"],
                "privateOptions": [{"option": 225, "value": "x"}],
                "tftpServerName": "tftp",
            },
        }
    ],
    "logSerialConsole": False,
    "networkInterfaceMultiqueue": True,
    "panicDevices": [{"model": "isa"}],
    "rng": {},
    "sound": {"name": "horn", "model": "ac97"},
    "tpm": {"persistent": True},
    "useVirtioTransitional": True,
    "video": {"type": "virtio"},
    "watchdog": {"name": "dog", "i6300esb": {"action": "poweroff"}},
}

DOMAIN: JsonObject = {
    "chassis": {"asset": "a", "manufacturer": "m", "serial": "s", "sku": "k", "version": "v"},
    "clock": {
        "utc": {"offsetSeconds": 3600},
        "timer": {
            "hpet": {"present": False, "tickPolicy": "catchup"},
            "hyperv": {"present": False},
            "kvm": {"present": False},
            "pit": {"present": False, "tickPolicy": "delay"},
            "rtc": {"present": False, "tickPolicy": "catchup", "track": "guest"},
        },
    },
    "cpu": {
        "cores": 2,
        "sockets": 2,
        "threads": 2,
        "maxSockets": 8,
        "model": "Penryn",
        "features": [{"name": "apic", "policy": "forbid"}],
    },
    "devices": DEVICES,
    "features": {
        "acpi": _ON,
        "apic": {"endOfInterrupt": True},
        "hyperv": {
            "evmcs": _ON,
            "frequencies": _ON,
            "ipi": _ON,
            "reenlightenment": _ON,
            "relaxed": _ON,
            "reset": _ON,
            "runtime": _ON,
            "spinlocks": {"spinlocks": 8191},
            "synic": _ON,
            "synictimer": {"enabled": False, "direct": _ON},
            "tlbflush": _ON,
            "vapic": _ON,
            "vendorid": {"vendorid": "me"},
            "vpindex": _ON,
        },
        "kvm": {"hidden": True},
        "pvspinlock": _ON,
        "smm": _ON,
    },
    "firmware": {
        "acpi": {"msdmNameRef": "kept", "slicNameRef": "kept"},
        "bootloader": {"efi": {"persistent": True, "secureBoot": False}},
        "kernelBoot": {
            "container": {
                "image": "kernel:1",
                "imagePullPolicy": "Always",
                "imagePullSecret": "pull-kernel",
                "initrdPath": "/boot/initrd",
                "kernelPath": "/boot/vmlinuz",
            },
            "kernelArgs": "quiet",
        },
        "serial": "serial",
        "uuid": "5d307ca9-b3ef-428c-8861-06e72d69f223",
    },
    "machine": {"type": "pc-q35-7.2"},
    "memory": {
        "guest": "128Mi",
        "hugepages": {"pageSize": "2Mi"},
        "maxGuest": "512Mi",
        "reservedOverhead": {"addedOverhead": "64Mi"},
    },
    "rebootPolicy": "Terminate",
    "resources": {"limits": {"memory": "256Mi"}, "requests": {"cpu": "250m"}},
}

VOLUMES: list[JsonObject] = [
    {
        "name": "container",
        "containerDisk": {
            "image": "disk:1",
            "imagePullPolicy": "Always",
            "imagePullSecret": "pull",
            "path": "/disk/other.img",
        },
    },
    {"name": "claim", "persistentVolumeClaim": {"claimName": "claim", "readOnly": True}},
    {"name": "cd", "dataVolume": {"name": "imported"}},
    {"name": "layer", "ephemeral": {"persistentVolumeClaim": {"claimName": "below"}}},
    {"name": "nocloud", "cloudInitNoCloud": {**_INIT, "userData": "#cloud-config"}},
    {"name": "drive", "cloudInitConfigDrive": {**_INIT, "userData": "#cloud-config"}},
    {"name": "map", "configMap": {"name": "m", "optional": True, "volumeLabel": "maps"}},
    {"name": "kept", "secret": {"secretName": "k", "optional": True, "volumeLabel": "kept"}},
    {
        "name": "pod",
        "downwardAPI": {
            "fields": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}],
            "volumeLabel": "pod",
        },
    },
    {"name": "empty", "emptyDisk": {"capacity": "1Gi"}},
    {"name": "host", "hostDisk": {"path": "/data/disk.img", "type": "DiskOrCreate", "capacity": "1Gi"}},
    {"name": "token", "serviceAccount": {"serviceAccountName": "account"}},
    {"name": "answers", "sysprep": {"configMap": {"name": "answers"}}},
    {"name": "metrics", "downwardMetrics": {}},
]

INSTANCE: JsonObject = {
    "accessCredentials": [
        {
            "sshPublicKey": {
                "source": {"secret": {"secretName": "keys"}},
                "propagationMethod": {"qemuGuestAgent": {"users": ["ann"]}},
            }
        },
        {
            "userPassword": {
                "source": {"secret": {"secretName": "words"}},
                "propagationMethod": {"qemuGuestAgent": {}},
            }
        },
    ],
    "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    "architecture": "arm64",
    "dnsConfig": {"nameservers": ["10.0.0.1"]},
    "dnsPolicy": "None",
    "domain": DOMAIN,
    "evictionStrategy": "LiveMigrate",
    "hostname": "host",
    "livenessProbe": _PROBE,
    "networks": [
        {"name": "default", "pod": {"vmNetworkCIDR": "10.9.0.0/24", "vmIPv6NetworkCIDR": "fd10:0:9::/120"}}
    ],
    "nodeSelector": {"disk": "fast"},
    "priorityClassName": "high",
    "readinessProbe": _PROBE,
    "resourceClaims": [{"name": "c", "resourceClaimName": "c"}],
    "schedulerName": "other",
    "serviceAccountName": "runner",
    "startStrategy": "Paused",
    "subdomain": "sub",
    "terminationGracePeriodSeconds": 7,
    "utilityVolumes": [{"name": "beside", "claimName": "target", "readOnly": True}],
    "tolerations": [{"key": "k", "operator": "Exists"}],
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"},
    ],
    "volumes": VOLUMES,
}
"""An instance's spec. Alternatives to what it holds are in `ALTERNATIVES`."""

Change = tuple[str, Any]
ALTERNATIVES: Sequence[Sequence[Change]] = (
    [("architecture", "amd64")],
    [("domain.firmware.bootloader", {"bios": {"useSerial": True}})],
    [("domain.clock", {"timezone": "Europe/Berlin"})],
    [
        ("domain.cpu.dedicatedCpuPlacement", True),
        ("domain.cpu.isolateEmulatorThread", True),
        ("domain.cpu.numa", {"guestMappingPassthrough": {}}),
        ("domain.cpu.realtime", {"mask": "0-1"}),
        ("domain.ioThreadsPolicy", "supplementalPool"),
        ("domain.ioThreads", {"supplementalPoolThreadCount": 2}),
    ],
    [("domain.cpu", {"dedicatedCpuPlacement": True, "cores": 2})],
    [("domain.memory.reservedOverhead", {"memLock": "NotRequired"})],
    [("domain.features.hypervPassthrough", {"enabled": False})],
    [("domain.launchSecurity", {"sev": {"dhCert": "a", "session": "b", "policy": {"encryptedState": True}}})],
    [("domain.devices.gpus.0.virtualGPUOptions", {"display": {"enabled": False}})],
    [
        ("domain.devices.gpus", [{"name": "gpu", "claimName": "c", "requestName": "gpu"}]),
        ("domain.devices.hostDevices", [{"name": "card", "claimName": "c", "requestName": "card"}]),
    ],
    [("domain.devices.disks.0.blockSize", {"matchVolume": {"enabled": False}})],
    [("domain.devices.tpm", {"enabled": False})],
    [("domain.devices.autoattachMemBalloon", True), ("domain.devices.autoattachGraphicsDevice", False)],
    [("domain.devices.autoattachSerialConsole", False)],
    [("domain.devices.watchdog", {"name": "dog", "diag288": {"action": "shutdown"}})],
    [("domain.devices.interfaces", []), ("networks", []), ("domain.devices.autoattachPodInterface", False)],
    [("domain.devices.interfaces", [{"name": "default", "bridge": {}}])],
    [("domain.devices.interfaces", [{"name": "default", "binding": {"name": "plugin"}}])],
    [("domain.devices.interfaces", [{"name": "default", "sriov": {}}])],
    [("domain.devices.interfaces", [{"name": "default", "passtBinding": {}}])],
    [("domain.devices.interfaces", [{"name": "default", "masquerade": {}}]), ("domain.cpu", {"cores": 2})],
    [("domain.devices.interfaces", [{"name": "default", "masquerade": {}, "portRanges": [_PORT_RANGE]}])],
    [
        ("domain.devices.interfaces", [{"name": "default", "bridge": {}}]),
        ("networks", [{"name": "default", "multus": {"networkName": "blue", "default": True}}]),
    ],
    [("domain.features.apic", {"enabled": False})],
    [("domain.features.hyperv", {"spinlocks": _ON, "vendorid": {"enabled": False, "vendorid": "me"}})],
    [("domain.memory", {"guest": "128Mi"}), ("domain.resources", {"overcommitGuestOverhead": True})],
    [
        ("domain.devices.gpus", []),
        ("domain.devices.hostDevices", []),
        ("domain.devices.autoattachVSOCK", False),
        ("domain.devices.disks", []),
        ("volumes", [{"name": "host", "hostDisk": {"path": "/d/disk.img", "type": "Disk", "shared": True}}]),
    ],
    [("volumes", [{"name": "answers", "sysprep": {"secret": {"name": "answers"}}}])],
    [
        ("volumes", [{"name": "token", "containerPath": {"path": "/cloud/token", "readOnly": True}}]),
        ("domain.devices.filesystems", [{"name": "token", "virtiofs": {}}]),
    ],
    *(
        [("volumes", [{"name": "later", kind: {name: "c", "hotpluggable": True}}])]
        for kind, name in (
            *(("persistentVolumeClaim", "claimName"), ("dataVolume", "name")),
            ("memoryDump", "claimName"),
        )
    ),
    *(
        [("volumes", [{"name": "init", kind: {"userDataBase64": "IyE=", "networkDataBase64": "IyE="}}])]
        for kind in ("cloudInitNoCloud", "cloudInitConfigDrive")
    ),
    *(
        [
            ("accessCredentials.0.sshPublicKey.propagationMethod", {method: {}}),
            ("volumes", [{"name": "init", kind: {"userData": "x"}}]),
        ]
        for method, kind in (("noCloud", "cloudInitNoCloud"), ("configDrive", "cloudInitConfigDrive"))
    ),
)


def documents(spec: JsonObject, alternatives: Sequence[Sequence[Change]]) -> Iterator[JsonObject]:
    """`spec`, and what it is with each of the alternatives."""
    yield deep_copy(spec)
    for changes in alternatives:
        changed = deep_copy(spec)
        for path, value in changes:
            *parents, last = path.split(".")
            holder: Any = changed
            for part in parents:
                holder = holder[int(part)] if isinstance(holder, list) else holder.setdefault(part, {})
            holder[last] = deep_copy({"value": value})["value"]
        yield changed


def without(document: JsonObject, path: str) -> JsonObject | None:
    """A copy without the field `path` anywhere; None where the document does not have it."""
    copy = deep_copy(document)
    return copy if _change(copy, path.split("."), _remove) else None


def with_another(document: JsonObject, path: str) -> JsonObject:
    """A copy in which the field `path` has another value wherever it is."""
    copy = deep_copy(document)
    _change(copy, path.split("."), _replace)
    return copy


def _change(value: Any, parts: Sequence[str], change: Callable[[JsonObject, str], None]) -> bool:
    name = parts[0].removesuffix("[]")
    if not isinstance(value, dict) or name not in value:
        return False
    if len(parts) == 1:
        change(value, name)
        return True
    if parts[0].endswith("[]"):
        changed = [_change(item, parts[1:], change) for item in value[name]]
        return any(changed)
    return _change(value[name], parts[1:], change)


def _remove(holder: JsonObject, name: str) -> None:
    del holder[name]


def _replace(holder: JsonObject, name: str) -> None:
    value = holder[name]
    if isinstance(value, bool):
        holder[name] = not value
    elif isinstance(value, list):
        holder[name] = []
    else:
        holder[name] = "1" + value if isinstance(value, str) else value + 1 if isinstance(value, int) else {}


Effect = Callable[[JsonObject], Any]


def silent(table: Table, samples: Iterable[JsonObject], effects: Sequence[Effect]) -> list[str]:
    """Fields that are said to act, but without which the effects of every sample are the same."""
    left = [path for path, field in table.items() if field.state is State.ACTS]
    for sample in samples:
        whole = [_outcome(effect, sample) for effect in effects]
        assert UNFIT not in whole, "the sample is no document of its type"
        assert whole == [_outcome(effect, sample) for effect in effects], "it does not change by itself"
        left = [path for path in left if not _shows(sample, path, effects, whole)]
    return left


def _shows(sample: JsonObject, path: str, effects: Sequence[Effect], whole: Sequence[Any]) -> bool:
    changed = without(sample, path)
    if changed is None:
        return False
    for effect, before in zip(effects, whole, strict=True):
        outcome = _outcome(effect, changed)
        if outcome is UNFIT:
            outcome = _outcome(effect, with_another(sample, path))
        if outcome not in (before, UNFIT):
            return True
    return False


UNFIT = object()
"""There is no such document, because its type requires the field that is missing."""


def _outcome(effect: Effect, document: JsonObject) -> Any:
    """What comes of a document: a result, or the error that a field's absence leads to."""
    try:
        return effect(deep_copy(document))
    except UnfitDocument:
        return UNFIT
    except (KeyError, LookupError, ValueError, StopIteration) as error:
        return f"{type(error).__name__}: {error}"
