"""Labels, annotations and paths of sandboxes and containers, the same as a kubelet's: tools rely on them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import orjson

from kubecore.json import JsonObject, get_object, get_str

LABEL_NAME = "io.kubernetes.pod.name"
LABEL_NAMESPACE = "io.kubernetes.pod.namespace"
LABEL_UID = "io.kubernetes.pod.uid"
LABEL_CONTAINER = "io.kubernetes.container.name"
ANNOTATION_HASH = "io.kubernetes.container.hash"
ANNOTATION_RESTARTS = "io.kubernetes.container.restartCount"
ANNOTATION_TERMINATION_PATH = "io.kubernetes.container.terminationMessagePath"
ANNOTATION_TERMINATION_POLICY = "io.kubernetes.container.terminationMessagePolicy"
ANNOTATION_TERMINATION_FILE = "kindling.local/termination-file"

ROOT = Path("/var/lib/kubelet")
LOGS = Path("/var/log/pods")
CONTAINER_LOGS = Path("/var/log/containers")
_LOG_SUFFIX = ".log"
_MAX_FILE_NAME = 255


def pod_labels(pod: JsonObject) -> dict[str, str]:
    """Labels of a sandbox: the pod's own and its identity."""
    own = {str(key): str(value) for key, value in get_object(pod, "metadata", "labels").items()}
    return own | identity_labels(pod)


def identity_labels(pod: JsonObject) -> dict[str, str]:
    """The labels by which sandboxes and containers of a pod are found again."""
    metadata = get_object(pod, "metadata")
    return {
        LABEL_NAME: get_str(metadata, "name"),
        LABEL_NAMESPACE: get_str(metadata, "namespace"),
        LABEL_UID: get_str(metadata, "uid"),
    }


def log_directory(pod: JsonObject) -> Path:
    """``/var/log/pods/NAMESPACE_NAME_UID``, of which a name that is too long for a file's loses its end."""
    metadata = get_object(pod, "metadata")
    name, end = (
        f"{get_str(metadata, 'namespace')}_{get_str(metadata, 'name')}",
        f"_{get_str(metadata, 'uid')}",
    )
    return LOGS / f"{name[: _MAX_FILE_NAME - len(end)]}{end}"


def container_log_link(pod: JsonObject, container: str, container_id: str) -> Path:
    """The link to a container's log in ``/var/log/containers``, cut to what a file's name may have."""
    metadata = get_object(pod, "metadata")
    name = f"{get_str(metadata, 'name')}_{get_str(metadata, 'namespace')}_{container}-{container_id}"
    return CONTAINER_LOGS / f"{name[: _MAX_FILE_NAME - len(_LOG_SUFFIX)]}{_LOG_SUFFIX}"


def pod_directory(uid: str) -> Path:
    """``/var/lib/kubelet/pods/UID``."""
    return ROOT / "pods" / uid


def volume_directory(uid: str, plugin: str, name: str) -> Path:
    """``.../volumes/kubernetes.io~PLUGIN/NAME``."""
    return pod_directory(uid) / "volumes" / f"kubernetes.io~{plugin}" / name


def display_name(pod: JsonObject) -> str:
    """``name_namespace(uid)``, as messages name pods."""
    metadata = get_object(pod, "metadata")
    return f"{get_str(metadata, 'name')}_{get_str(metadata, 'namespace')}({get_str(metadata, 'uid')})"


def container_hash(container: JsonObject) -> str:
    """Changes when the definition that a container was made from changes (its image, mostly)."""
    relevant = {key: container.get(key) for key in ("name", "image")}
    return hashlib.sha256(orjson.dumps(relevant, option=orjson.OPT_SORT_KEYS)).hexdigest()[:8]


def field_path(pod: JsonObject, name: str) -> str:
    """``spec.containers{name}`` or ``spec.initContainers{name}``, for events."""
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        listed: Iterable[JsonObject] = get_object(pod, "spec").get(kind) or ()
        if any(item.get("name") == name for item in listed):
            return f"spec.{kind}{{{name}}}"
    return ""
