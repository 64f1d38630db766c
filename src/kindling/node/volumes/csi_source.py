"""What a pod wants of a CSI volume, read from a PersistentVolume or from the pod itself. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kindling.scheduler import csi, volume_rules
from kubecore.json import JsonObject, get_bool, get_list, get_object, get_str

STAGE, STATS, EXPAND, CONDITION, MULTI_WRITER, MOUNT_GROUP = 1, 2, 3, 4, 5, 6
"""Values of NodeServiceCapability.RPC.Type."""

POD_INFO = "csi.storage.k8s.io/"
TOKENS = f"{POD_INFO}serviceAccount.tokens"

_ACCESS_MODES = {"ReadWriteOnce": 1, "ReadOnlyMany": 3, "ReadWriteMany": 5, "ReadWriteOncePod": 1}
_MULTI_WRITER_MODES = {"ReadWriteOnce": 7, "ReadWriteOncePod": 6}
"""Modes of drivers that tell one pod from several on one node."""
_WIDEST_FIRST = ("ReadWriteMany", "ReadOnlyMany", "ReadWriteOnce", "ReadWriteOncePod")
_SECRETS = ("nodeStageSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef")


@dataclass(frozen=True, slots=True)
class Source:
    """A CSI volume of a pod. `name` is that of the persistent volume, or of the pod's own volume if it is
    `ephemeral`; `capacity` is in bytes. `secrets` are (namespace, name) by the field that refers to them.
    """

    name: str
    driver: str
    handle: str
    ephemeral: bool = False
    block: bool = False
    read_only: bool = False
    fs_type: str = ""
    capacity: int = 0
    access_modes: tuple[str, ...] = ("ReadWriteOnce",)
    mount_options: tuple[str, ...] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def is_single_pod(self) -> bool:
        """Whether no second pod may use the volume."""
        return self.access_modes == ("ReadWriteOncePod",)


def persistent(volume: JsonObject, *, read_only: bool) -> Source:
    """The source of a PersistentVolume."""
    spec = get_object(volume, "spec")
    source = get_object(spec, "csi")
    return Source(
        name=get_str(volume, "metadata", "name"),
        driver=get_str(source, "driver"),
        handle=get_str(source, "volumeHandle"),
        block=get_str(spec, "volumeMode") == "Block",
        read_only=read_only or get_bool(source, "readOnly"),
        fs_type=get_str(source, "fsType"),
        capacity=volume_rules.capacity(volume),
        access_modes=tuple(get_list(spec, "accessModes")) or ("ReadWriteOnce",),
        mount_options=tuple(get_list(spec, "mountOptions")),
        attributes=get_object(source, "volumeAttributes"),
        secrets={
            kind: (get_str(source, kind, "namespace"), get_str(source, kind, "name"))
            for kind in _SECRETS
            if get_object(source, kind)
        },
    )


def inline(pod: JsonObject, volume: JsonObject) -> Source:
    """The source of an ephemeral volume that the pod describes itself."""
    source, name = get_object(volume, "csi"), get_str(volume, "name")
    secret = get_str(source, "nodePublishSecretRef", "name")
    namespace = get_str(pod, "metadata", "namespace")
    return Source(
        name=name,
        driver=get_str(source, "driver"),
        handle=csi.inline_handle(get_str(pod, "metadata", "uid"), name),
        ephemeral=True,
        read_only=get_bool(source, "readOnly"),
        fs_type=get_str(source, "fsType"),
        attributes=get_object(source, "volumeAttributes"),
        secrets={"nodePublishSecretRef": (namespace, secret)} if secret else {},
    )


def capability(source: Source, offered: frozenset[int], group: int | None) -> dict[str, Any]:
    """CSI's VolumeCapability. `group` is the pod's fsGroup; drivers that can, mount with it."""
    table: Mapping[str, int] = _ACCESS_MODES
    if MULTI_WRITER in offered:
        table = {**_ACCESS_MODES, **_MULTI_WRITER_MODES}
    mode = next((table[name] for name in _WIDEST_FIRST if name in source.access_modes), 0)
    if source.block:
        return {"block": {}, "access_mode": {"mode": mode}}
    mount: dict[str, Any] = {"fs_type": source.fs_type, "mount_flags": list(source.mount_options)}
    if MOUNT_GROUP in offered and group is not None:
        mount["volume_mount_group"] = str(group)
    return {"mount": mount, "access_mode": {"mode": mode}}


def mode_problem(source: Source, rules: JsonObject | None) -> str:
    """Why the driver does not offer volumes of this kind (persistent or ephemeral); empty when it does."""
    mode = "Ephemeral" if source.ephemeral else "Persistent"
    if rules is None:
        if not source.ephemeral:
            return ""
        return f'volume mode "{mode}" not supported by driver {source.driver} (no CSIDriver object)'
    offered = get_list(rules, "spec", "volumeLifecycleModes") or ["Persistent"]
    if mode in offered:
        return ""
    shown = " ".join(f'"{name}"' for name in offered)
    return f'volume mode "{mode}" not supported by driver {source.driver} (only supports [{shown}])'


def wants_ownership(source: Source, rules: JsonObject | None, offered: frozenset[int]) -> bool:
    """Whether the agent hands the volume's files over to the pod's fsGroup (fsGroupPolicy)."""
    policy = get_str(rules or {}, "spec", "fsGroupPolicy", default="ReadWriteOnceWithFSType")
    if source.block or source.read_only or MOUNT_GROUP in offered or policy == "None":
        return False
    if policy == "File":
        return True
    once = not {"ReadWriteOnce", "ReadWriteOncePod"}.isdisjoint(source.access_modes)
    return bool(source.fs_type) and (source.ephemeral or once)


def pod_info(pod: JsonObject, source: Source, rules: JsonObject | None) -> dict[str, str]:
    """What a driver that asks for it learns of the pod."""
    if not get_bool(rules or {}, "spec", "podInfoOnMount"):
        return {}
    metadata = get_object(pod, "metadata")
    return {
        f"{POD_INFO}pod.name": get_str(metadata, "name"),
        f"{POD_INFO}pod.namespace": get_str(metadata, "namespace"),
        f"{POD_INFO}pod.uid": get_str(metadata, "uid"),
        f"{POD_INFO}serviceAccount.name": get_str(pod, "spec", "serviceAccountName"),
        f"{POD_INFO}ephemeral": str(source.ephemeral).lower(),
    }
