"""Claims and pods for tests of the controllers of data volumes."""

from __future__ import annotations

import json
from typing import Any

from kubecore.objects.structs import decode
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.storage.cdi.controller.workers.pods import Pod

STORAGE = "cdi.kubevirt.io/storage."
PRIME_KIND = {STORAGE + "populator.kind": "VolumeImportSource"}


def claim(name: str = "dv", uid: str = "1", **members: Any) -> PersistentVolumeClaim:
    """A claim; `annotations` are named without CDI's prefix, `phase` is that of the claim."""
    return decode(PersistentVolumeClaim, claim_document(name, uid, **members))


def claim_document(
    name: str = "dv",
    uid: str = "1",
    *,
    annotations: dict[str, str] | None = None,
    phase: str = "Bound",
    mode: str = "Filesystem",
    **metadata: Any,
) -> dict[str, Any]:
    """The same as a document."""
    given = {STORAGE + key if "/" not in key else key: text for key, text in (annotations or {}).items()}
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "csi",
        "volumeMode": mode,
    }
    if phase == "Bound":
        spec["volumeName"] = f"pv-{name}"
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "ns", "uid": uid, "annotations": given, **metadata},
        "spec": spec,
        "status": {"phase": phase},
    }


def pod(phase: str = "Running", *, state: dict[str, Any] | None = None, **members: Any) -> Pod:
    """A worker pod whose container is in `state`."""
    return decode(
        Pod, {"metadata": {"name": "importer-dv", "uid": "2"}, **pod_status(phase, state), **members}
    )


def pod_status(
    phase: str = "Running", state: dict[str, Any] | None = None, container: str = "importer"
) -> dict[str, Any]:
    """The status of a pod as its kubelet writes it."""
    found: dict[str, Any] = {"name": container, "image": "importer:1", "restartCount": 0}
    found |= {"state": state or {}, "ready": "running" in (state or {})}
    return {"status": {"phase": phase, "containerStatuses": [found]}}


def ended(said: Any = None, *, code: int = 0, reason: str = "Completed") -> dict[str, Any]:
    """The state of a container that has ended; what it said is text or a document."""
    text = said if isinstance(said, str) else json.dumps(said or {"message": "Import Complete"})
    return {"terminated": {"exitCode": code, "reason": reason, "message": text}}
