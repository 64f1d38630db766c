"""What clients of CSI drivers share: access modes and volume capabilities.

The rules are those of Kubernetes' sidecars (csi-lib-utils, ``accessmodes``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kubecore.wire.interface import load_interface

_UNCOMBINED = (
    "Kubernetes does not support use of ReadWriteOncePod with other access modes on the same PersistentVolume"
)
_CONTRADICTION = "CSI does not support ReadOnlyMany and ReadWriteOnce on the same PersistentVolume"


def numbers(enum: str) -> dict[str, int]:
    """The values of an enumeration of the interface, by name."""
    return dict(load_interface("csi-v1").enums[enum])


def names(enum: str, values: Iterable[int]) -> frozenset[str]:
    """The names of those `values` that the interface knows; a newer driver may have others."""
    known = {number: name for name, number in numbers(enum).items()}
    return frozenset(known[value] for value in values if value in known)


def access_mode(modes: Sequence[str], *, tells_pods_apart: bool) -> str:
    """CSI's one access mode for those of a persistent volume.

    `tells_pods_apart`: the driver has the capability SINGLE_NODE_MULTI_WRITER. Raises ValueError.
    """
    wanted = set(modes)
    if "ReadWriteOncePod" in wanted:
        if len(wanted) > 1:
            raise ValueError(_UNCOMBINED)
        return "SINGLE_NODE_SINGLE_WRITER" if tells_pods_apart else "SINGLE_NODE_WRITER"
    if "ReadWriteMany" in wanted:
        return "MULTI_NODE_MULTI_WRITER"
    if wanted >= {"ReadOnlyMany", "ReadWriteOnce"}:
        raise ValueError(_CONTRADICTION)
    if "ReadOnlyMany" in wanted:
        return "MULTI_NODE_READER_ONLY"
    if "ReadWriteOnce" in wanted:
        return "SINGLE_NODE_MULTI_WRITER" if tells_pods_apart else "SINGLE_NODE_WRITER"
    raise ValueError(f"unsupported AccessMode combination: [{' '.join(modes)}]")


def volume_capability(
    modes: Sequence[str],
    *,
    block: bool,
    fs_type: str = "",
    mount_flags: Sequence[str] = (),
    tells_pods_apart: bool,
) -> dict[str, Any]:
    """CSI's VolumeCapability as values of the message. Raises ValueError for modes that CSI lacks."""
    name = access_mode(modes, tells_pods_apart=tells_pods_apart)
    mode = {"mode": numbers("VolumeCapability.AccessMode.Mode")[name]}
    if block:
        return {"block": {}, "access_mode": mode}
    return {"mount": {"fs_type": fs_type, "mount_flags": list(mount_flags)}, "access_mode": mode}
