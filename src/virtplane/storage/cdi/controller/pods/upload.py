"""The upload server's pod and service: pure functions of the claim that is filled."""

from __future__ import annotations

import json
from dataclasses import dataclass

from kubecore.json import JsonObject
from virtplane.api import cdi_labels as names
from virtplane.api import cdi_names
from virtplane.api.meta_v1 import ObjectMeta
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.storage.cdi.controller import claims
from virtplane.storage.cdi.controller.pods import worker
from virtplane.storage.cdi.controller.pods.worker import Workers

CONTAINER = "cdi-upload-server"
_CERTIFICATES = "/etc/tls/"
_SERVICE = "service"
"""The label by which the service finds its pod."""


@dataclass(frozen=True, slots=True)
class Upload:
    """What an upload pod depends on besides its claim.

    `deadline` is when its certificates are to be renewed, `client` the common name it takes uploads from.
    """

    overhead: str
    deadline: str
    client: str = cdi_names.UPLOAD_CLIENT_NAME
    has_scratch: bool = True
    ciphers: str = ""
    min_tls_version: str = ""


def upload_pod(workers: Workers, claim: PersistentVolumeClaim, wanted: Upload) -> JsonObject:
    """The pod that takes what is uploaded into `claim`."""
    name = cdi_names.upload_pod(claim.metadata.name)
    volumes: list[JsonObject] = [
        {"name": "tls-config", "secret": {"secretName": name}},
        worker.claim_volume(worker.DATA_VOLUME, claim.metadata.name),
    ]
    mounts: list[JsonObject] = [{"name": "tls-config", "mountPath": _CERTIFICATES}]
    if wanted.has_scratch:
        scratch = cdi_names.scratch_claim(claim.metadata.name)
        volumes.append(worker.claim_volume(worker.SCRATCH_VOLUME, scratch))
        mounts.append({"name": worker.SCRATCH_VOLUME, "mountPath": worker.SCRATCH_PATH})
    container = worker.container(
        workers,
        CONTAINER,
        workers.upload_server_image,
        args=[f"-v={workers.verbosity}"],
        env=_environment(claim, wanted),
        readinessProbe={
            "httpGet": {"path": "/healthz", "port": worker.PORT, "scheme": "HTTPS"},
            "initialDelaySeconds": 2,
            "periodSeconds": 5,
        },
        **worker.data_access(claim),
    )
    container["volumeMounts"] = [*container.get("volumeMounts", ()), *mounts]
    labels = {
        "app": names.APP,
        names.COMPONENT: names.UPLOAD_SERVER,
        _SERVICE: cdi_names.upload_service(claim.metadata.name),
        names.UPLOAD_TARGET_UID: claim.metadata.uid,
        **workers.recommended_labels,
    }
    ports = json.dumps([{"protocol": "tcp", "port": worker.PORT}], separators=(",", ":"))
    own = {names.CREATED_BY_UPLOAD_CONTROLLER: "yes", names.OPEN_DEFAULT_PORTS: ports}
    metadata: JsonObject = {
        "labels": labels,
        "annotations": worker.pod_annotations(claim, own),
        "ownerReferences": [worker.owner(claim)],
    }
    return worker.pod(workers, claim, name, metadata, {"containers": [container], "volumes": volumes})


def upload_service(workers: Workers, claim: PersistentVolumeClaim) -> JsonObject:
    """The service by which the upload proxy reaches the pod."""
    name = cdi_names.upload_service(claim.metadata.name)
    metadata = {
        "name": name,
        "namespace": claim.metadata.namespace,
        "labels": {"app": names.APP, names.COMPONENT: names.UPLOAD_SERVER, **workers.recommended_labels},
        "annotations": {names.CREATED_BY_UPLOAD_CONTROLLER: "yes"},
        "ownerReferences": [worker.owner(claim)],
    }
    port = {"port": worker.PORT, "targetPort": worker.PORT, "protocol": "TCP"}
    spec = {"clusterIP": "None", "ports": [port], "selector": {_SERVICE: name}}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def certificate_secret(workers: Workers, pod: ObjectMeta, data: dict[str, str]) -> JsonObject:
    """The secret with the server's certificate, which goes with its pod; `data` is encoded as secrets are."""
    metadata = {
        "name": pod.name,
        "namespace": pod.namespace,
        "labels": {"app": names.APP, names.COMPONENT: names.UPLOAD_SERVER, **workers.recommended_labels},
        "annotations": {names.CREATED_BY_UPLOAD_CONTROLLER: "yes"},
        "ownerReferences": [worker.pod_owner(pod)],
    }
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


def _environment(claim: PersistentVolumeClaim, wanted: Upload) -> list[JsonObject]:
    preallocation = claims.is_true(claim.metadata, names.PREALLOCATION_REQUESTED)
    found = {
        "TLS_KEY_FILE": f"{_CERTIFICATES}tls.key",
        "TLS_CERT_FILE": f"{_CERTIFICATES}tls.crt",
        "CLIENT_CERT_FILE": f"{_CERTIFICATES}ca.crt",
        "FILESYSTEM_OVERHEAD": wanted.overhead,
        "UPLOAD_IMAGE_SIZE": claims.requested(claim),
        "CLIENT_NAME": wanted.client,
        "PREALLOCATION": claims.TRUE if preallocation else claims.FALSE,
        "TLS_CIPHERS": wanted.ciphers,
        "TLS_MIN_VERSION": wanted.min_tls_version,
        "DEADLINE": wanted.deadline,
    }
    if worker.is_block(claim):
        found["DESTINATION"] = worker.DEVICE_PATH
    return [{"name": name, "value": text} if text else {"name": name} for name, text in found.items()]
