"""An operator of the kind that kopf's documentation builds: claims behind objects of its own.

Each EphemeralVolumeClaim has a PersistentVolumeClaim, made with it, resized with it, labelled with it and
deleted with it. Besides: a daemonless timer, an index, an event handler and an admission webhook.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import kopf
from kubernetes import client, config

GROUP = "kopf.example"
KIND = "ephemeralvolumeclaims"


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    """Kopf's own client comes from the kubeconfig; the other one as well. Progress is kept in the status."""
    config.load_kube_config()
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage()
    folder = Path(os.environ["CERTIFICATES"])
    settings.admission.server = kopf.WebhookServer(
        addr="127.0.0.1",
        host="127.0.0.1",
        cafile=folder / "ca.crt",
        certfile=folder / "tls.crt",
        pkeyfile=folder / "tls.key",
    )
    settings.admission.managed = f"claims.{GROUP}"


@kopf.on.validate(GROUP, "v1", KIND, id="sizes")
def refuse_huge(spec: Any, warnings: list[str], **_: Any) -> None:
    """No claim of tebibytes; a warning for those of many gibibytes."""
    size = spec.get("size", "")
    if size.endswith("Ti"):
        raise kopf.AdmissionError("That is too much.", code=429)
    if size.endswith("00Gi"):
        warnings.append("That is a lot.")


@kopf.on.mutate(GROUP, "v1", KIND, id="defaults")
def default_size(spec: Any, patch: kopf.Patch, **_: Any) -> None:
    """One gibibyte unless said otherwise."""
    if "size" not in spec:
        patch.spec["size"] = "1Gi"


@kopf.index(GROUP, "v1", KIND)
def by_size(spec: Any, name: str, **_: Any) -> dict[str, str]:
    """Names by size."""
    return {spec.get("size", ""): name}


@kopf.on.create(GROUP, "v1", KIND)
def create(spec: Any, name: str, namespace: str | None, body: Any, **_: Any) -> dict[str, str]:
    """Make the claim; its name becomes part of the status."""
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": f"claim-of-{name}"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": spec["size"]}},
        },
    }
    kopf.adopt(claim)
    made = client.CoreV1Api().create_namespaced_persistent_volume_claim(namespace, claim)
    kopf.info(body, reason="Made", message="The claim is made.")
    return {"claim": made.metadata.name}


@kopf.on.update(GROUP, "v1", KIND, field="spec.note")
def update(name: str, new: Any, namespace: str | None, status: Any, patch: kopf.Patch, **_: Any) -> None:
    """Carry a changed note over to the claim."""
    body = {"metadata": {"annotations": {"note": new}}}
    claim = status["create"]["claim"]
    client.CoreV1Api().patch_namespaced_persistent_volume_claim(claim, namespace, body)
    patch.status["note"] = new


@kopf.on.update(GROUP, "v1", KIND, field="metadata.labels")
def relabel(diff: Any, status: Any, namespace: str | None, **_: Any) -> None:
    """Carry changed labels over to the claim."""
    labels = {field[0]: new for _, field, _, new in diff}
    patch = {"metadata": {"labels": labels}}
    client.CoreV1Api().patch_namespaced_persistent_volume_claim(status["create"]["claim"], namespace, patch)


@kopf.timer(GROUP, "v1", KIND, interval=0.5)  # type: ignore[arg-type] # its protocol lacks indices
def count(patch: kopf.Patch, status: Any, by_size: kopf.Index[str, str], spec: Any, **_: Any) -> None:
    """Count the turns, and who has the same size."""
    patch.status["turns"] = status.get("turns", 0) + 1
    patch.status["same"] = len(by_size.get(spec.get("size", ""), []))


@kopf.on.delete(GROUP, "v1", KIND)
def delete(name: str, namespace: str | None, **_: Any) -> None:
    """Leave a note behind. The claim goes with its owner."""
    body = {"metadata": {"name": f"farewell-{name}"}}
    client.CoreV1Api().create_namespaced_config_map(namespace, body)
