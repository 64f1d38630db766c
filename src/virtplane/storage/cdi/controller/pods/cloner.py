"""The pod that sends the source of a clone by pods: pure functions of the claims."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from kubecore.json import JsonObject, get_object
from kubecore.objects.structs import encode
from virtplane.api import cdi_labels as names
from virtplane.api import cdi_names, labels
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.storage.cdi.controller import claims
from virtplane.storage.cdi.controller.pods import worker
from virtplane.storage.cdi.controller.pods.worker import Workers

CONTAINER = "cdi-clone-source"
MOUNT_PATH = "/var/run/cdi/clone/source"
_UPLOAD_PATH = "/v1beta1/upload"
_HOST = "kubernetes.io/hostname"
_AFFINITY_WEIGHT = 100
_LONGEST_NAME = 64
_DIGEST = 56


@dataclass(frozen=True, slots=True)
class Copy:
    """What is copied into what; `authority` (PEM) is whom the pod trusts as upload servers."""

    source: PersistentVolumeClaim
    target: PersistentVolumeClaim
    authority: str

    @property
    def pod_name(self) -> str:
        """The name of the pod, and of the secret with its certificate."""
        return cdi_names.clone_source_pod(self.target.metadata.uid)


def client_name(source_namespace: str, source: str, target: PersistentVolumeClaim) -> str:
    """The common name by which the target's upload server knows the source's pod.

    It is made of the names, not taken from an annotation: who asked for the name of the upload proxy would
    get a certificate that every upload server trusts. Certificates have no room for long names (RFC 5280):
    a digest stands for those.
    """
    name = f"{source_namespace}/{source}-{target.metadata.namespace}/{target.metadata.name}"
    if len(name) <= _LONGEST_NAME:
        return name
    return f"clone/{hashlib.sha256(name.encode()).hexdigest()[:_DIGEST]}"


def requested_source(target: PersistentVolumeClaim) -> tuple[str, str] | None:
    """Namespace and name of the claim that is to be copied into `target`; None where that makes no sense."""
    namespace, slash, name = claims.value(target, names.CLONE_REQUEST).partition("/")
    return (namespace, name) if slash and namespace and name and "/" not in name else None


def source_pod(workers: Workers, copy: Copy) -> JsonObject:
    """The pod that sends what is in the source to the target's upload server. It is beside the source."""
    source, target = copy.source, copy.target
    is_block = worker.is_block(source)
    path = worker.DEVICE_PATH if is_block else MOUNT_PATH
    mount = {"name": worker.DATA_VOLUME, "mountPath": path, "readOnly": True}
    container = worker.container(
        workers,
        CONTAINER,
        workers.cloner_image,
        env=_environment(copy, path),
        ports=[{"name": "metrics", "containerPort": worker.PORT, "protocol": "TCP"}],
        **(worker.data_access(source) if is_block else {"volumeMounts": [mount]}),
    )
    metadata = {
        "labels": {
            "app": names.APP,
            names.COMPONENT: names.CLONE_SOURCE,
            names.CLONE_UNIQUE_ID: copy.pod_name,
            names.PROMETHEUS: "true",
            names.CLONE_SOURCE_UID: source.metadata.uid,
            **workers.recommended_labels,
        },
        "annotations": _annotations(copy),
    }
    spec = {
        "containers": [container],
        "volumes": [worker.claim_volume(worker.DATA_VOLUME, source.metadata.name)],
        "affinity": _affinity(workers, copy),
    }
    pod = worker.pod(workers, source, copy.pod_name, metadata, spec)
    return _as_asked(pod, target)


def _as_asked(pod: JsonObject, target: PersistentVolumeClaim) -> JsonObject:
    """`pod` with what the target asks of its pods, not what the source asks of its own."""
    spec = pod["spec"]
    for name in ("nodeName", "serviceAccountName", "priorityClassName"):
        spec.pop(name, None)
    if priority := claims.value(target, names.POD_PRIORITY_CLASS):
        spec["priorityClassName"] = priority
    return pod


def _annotations(copy: Copy) -> dict[str, str]:
    """Networks are those of the target; they may be named only where the pod is in its namespace."""
    source, target = copy.source.metadata, copy.target.metadata
    own = {
        names.CREATED_BY_CONTROLLER: "yes",
        names.OWNER_REF: f"{target.namespace}/{target.name}",
    }
    if source.namespace == target.namespace:
        return worker.pod_annotations(copy.target, own)
    return {labels.ISTIO_INJECT: "false", names.LINKERD_INJECT: "disabled", **own}


def _environment(copy: Copy, path: str) -> list[JsonObject]:
    target = copy.target
    service = cdi_names.upload_service(target.metadata.name)
    url = f"https://{service}.{target.metadata.namespace}.svc:{worker.PORT}{_UPLOAD_PATH}"
    found = {
        "SERVER_CA_CERT": copy.authority,
        "UPLOAD_URL": url,
        "OWNER_UID": owner_uid(target),
        "PREALLOCATION": claims.value(target, names.PREALLOCATION_REQUESTED),
        "VOLUME_MODE": "block" if worker.is_block(copy.source) else "filesystem",
        "MOUNT_POINT": path,
    }
    secrets = {"CLIENT_KEY": "tls.key", "CLIENT_CERT": "tls.crt"}
    return [
        *(
            {"name": name, "valueFrom": {"secretKeyRef": {"name": copy.pod_name, "key": key}}}
            for name, key in secrets.items()
        ),
        *({"name": name, "value": text} if text else {"name": name} for name, text in found.items()),
    ]


def owner_uid(target: PersistentVolumeClaim) -> str:
    """For whom the pod tells its progress: the DataVolume, or the claim that names a source."""
    owner = target.metadata.controller
    if owner is not None and owner.kind == "DataVolume":
        return owner.uid
    return claims.value(target, names.OWNER_UID)


def _affinity(workers: Workers, copy: Copy) -> JsonObject:
    """Near to the upload server, and where other pods already read a source that is for one node only."""
    source = copy.source
    given = encode(workers.placement).get("affinity", {})
    pods = get_object(given, "podAffinity")
    required = list(pods.get("requiredDuringSchedulingIgnoredDuringExecution", ()))
    preferred = list(pods.get("preferredDuringSchedulingIgnoredDuringExecution", ()))
    if tuple(source.spec.access_modes) == ("ReadWriteOnce",):
        required.append(_term(names.CLONE_SOURCE_UID, source))
    near = _term(names.UPLOAD_TARGET_UID, copy.target)
    preferred.append({"weight": _AFFINITY_WEIGHT, "podAffinityTerm": near})
    wanted: JsonObject = {**pods, "preferredDuringSchedulingIgnoredDuringExecution": preferred}
    if required:
        wanted["requiredDuringSchedulingIgnoredDuringExecution"] = required
    return {**given, "podAffinity": wanted}


def _term(label: str, claim: PersistentVolumeClaim) -> JsonObject:
    expression = {"key": label, "operator": "In", "values": [claim.metadata.uid]}
    return {
        "labelSelector": {"matchExpressions": [expression]},
        "namespaces": [claim.metadata.namespace],
        "topologyKey": _HOST,
    }


def certificate_secret(
    workers: Workers, name: str, pod: JsonObject, namespace: str, data: dict[str, str]
) -> JsonObject:
    """The secret with the certificate by which the pod is known; it goes with `pod`."""
    metadata = {
        "name": name,
        "namespace": namespace,
        "labels": {"app": names.APP, names.COMPONENT: names.CLONE_SOURCE, **workers.recommended_labels},
        "annotations": {names.CREATED_BY_CONTROLLER: "yes"},
        "ownerReferences": [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": name,
                "uid": pod["metadata"]["uid"],
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}
