"""Jobs and pods that ask a registry whether an image has changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects.structs import encode
from virtplane.api import cdi_labels as names
from virtplane.api import cdi_names, resources
from virtplane.api.cdi_v1beta1.cdi_config import CDIConfig
from virtplane.api.cdi_v1beta1.data_import_cron import DataImportCron
from virtplane.api.core_v1 import NodePlacement
from virtplane.api.meta_v1 import OwnerReference
from virtplane.api.pod_security import restricted_container
from virtplane.cluster.objects import controller_reference
from virtplane.storage.cdi.controller.crons import sources
from virtplane.storage.cdi.controller.pods.importer import COPY_CONTAINER
from virtplane.storage.cdi.controller.pods.worker import WORKER_USER

CONTAINER = "cdi-source-update-poller"
PROGRAM = "/usr/bin/cdi-source-update-poller"
IMAGE_CONTAINER = "image-container"
"""The container, of a pod that has its node pull, whose image is looked at."""

_CERTIFICATES, _CERTIFICATES_PATH = "cdi-cert-vol", "/certs"
_PROXY_CERTIFICATES, _PROXY_CERTIFICATES_PATH = "cdi-proxy-cert-vol", "/proxycerts/"
_SHARED, _SHARED_PATH = "shared-volume", "/shared"
_REQUIRED_SCC = "openshift.io/required-scc"
_ARCHITECTURE = "kubernetes.io/arch"
_OPTIONAL = ("affinity", "imagePullSecrets", "nodeSelector", "tolerations", "volumes")
"""Members of a pod's spec that are there only if somebody wants them."""


@dataclass(frozen=True, slots=True)
class Pollers:
    """How pods that poll are made in this installation. `namespace` is CDI's own."""

    image: str
    namespace: str
    pull_policy: str = "IfNotPresent"
    config: CDIConfig = field(default_factory=CDIConfig)
    placement: NodePlacement = field(default_factory=NodePlacement)
    labels: dict[str, str] = field(default_factory=dict)
    owner: OwnerReference | None = None
    commands: Mapping[str, list[str]] = field(default_factory=dict)
    """By the names of containers, where all programs are in one image: see programs.py."""


def cron_job(cron: DataImportCron, pollers: Pollers) -> JsonObject:
    """The CronJob that polls the registry of `cron` at the times of its schedule."""
    name = cdi_names.cron_job(cron.metadata.name, cron.metadata.uid)
    spec: JsonObject = {
        "schedule": cron.spec.schedule,
        "concurrencyPolicy": "Forbid",
        "successfulJobsHistoryLimit": 1,
        "failedJobsHistoryLimit": 1,
        "jobTemplate": {"spec": _job_spec(cron, pollers)},
    }
    metadata = _job_metadata(name, cron, pollers)
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": spec}


def initial_job(cron: DataImportCron, pollers: Pollers) -> JsonObject:
    """The Job that polls once, before the schedule says so."""
    name = cdi_names.initial_job(cron.metadata.name, cron.metadata.uid)
    metadata = _job_metadata(name, cron, pollers)
    spec = _job_spec(cron, pollers)
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def _job_metadata(name: str, cron: DataImportCron, pollers: Pollers) -> JsonObject:
    """The owner is CDI: one in another namespace than the job cannot be."""
    own = {names.CRON: cron.metadata.name, names.CRON_NAMESPACE: cron.metadata.namespace}
    metadata: JsonObject = {
        "name": name,
        "namespace": pollers.namespace,
        "labels": {**pollers.labels, **own},
    }
    if pollers.owner is not None:
        metadata["ownerReferences"] = [encode(pollers.owner)]
    return metadata


def _job_spec(cron: DataImportCron, pollers: Pollers) -> JsonObject:
    annotations = {_REQUIRED_SCC: "restricted-v2"}
    template = {
        "metadata": {"labels": {names.CRON_POLLER: ""}, "annotations": annotations},
        "spec": _poller_spec(cron, pollers),
    }
    return {"backoffLimit": 2, "ttlSecondsAfterFinished": 10, "template": template}


def _poller_spec(cron: DataImportCron, pollers: Pollers) -> JsonObject:
    registry = sources.registry(cron)
    assert registry is not None, "only crons with a registry are polled by jobs"
    program = pollers.commands.get(CONTAINER, [PROGRAM])
    url = registry.url or ""
    metadata = cron.metadata
    container: JsonObject = {
        "name": CONTAINER,
        "image": pollers.image,
        "imagePullPolicy": pollers.pull_policy,
        "command": [*program, "-ns", metadata.namespace, "-cron", metadata.name, "-url", url],
        "env": _environment(registry.secret_ref or "", url, pollers.config),
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": _security(pollers),
    }
    volumes: list[JsonObject] = []
    if registry.cert_config_map:
        container["command"] += ["-certdir", _CERTIFICATES_PATH]
        _mount(container, volumes, _CERTIFICATES, registry.cert_config_map, _CERTIFICATES_PATH)
    proxy = pollers.config.status.import_proxy
    if proxy is not None and proxy.trusted_ca_proxy:
        _mount(container, volumes, _PROXY_CERTIFICATES, proxy.trusted_ca_proxy, _PROXY_CERTIFICATES_PATH)
    spec: JsonObject = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "serviceAccountName": cdi_names.CRON_ACCOUNT,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        **encode(pollers.placement),
    }
    if volumes:
        spec["volumes"] = volumes
    if pull_secrets := pollers.config.status.image_pull_secrets:
        spec["imagePullSecrets"] = [encode(each) for each in pull_secrets]
    return spec


def _security(pollers: Pollers) -> JsonObject:
    """An image that is made of the machine's own files names no user; upstream's poller has one."""
    return restricted_container(WORKER_USER if pollers.commands else None)


def _mount(container: JsonObject, volumes: list[JsonObject], name: str, source: str, path: str) -> None:
    container.setdefault("volumeMounts", []).append({"name": name, "mountPath": path})
    volumes.append({"name": name, "configMap": {"name": source, "defaultMode": 0o644}})


def _environment(secret: str, url: str, config: CDIConfig) -> list[JsonObject]:
    keys = {"IMPORTER_ACCESS_KEY_ID": "accessKeyId", "IMPORTER_SECRET_KEY": "secretKey"} if secret else {}
    found: list[JsonObject] = [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}
        for name, key in keys.items()
    ]
    if sources.image_of(url).split("/")[0] in config.spec.insecure_registries:
        found.append({"name": "INSECURE_TLS", "value": "true"})
    proxy = config.status.import_proxy
    if proxy is not None:
        values = {
            "http_proxy": proxy.http_proxy,
            "https_proxy": proxy.https_proxy,
            "no_proxy": proxy.no_proxy,
        }
        found += [{"name": name, **({"value": value} if value else {})} for name, value in values.items()]
    return found


def pulling_pod(cron: DataImportCron, pollers: Pollers) -> JsonObject:
    """The pod that has its node pull the image of `cron`: the kubelet then reports its digest.

    The image may have no program at all, so one of CDI's is put beside it, which ends at once.
    """
    registry = sources.registry(cron)
    assert registry is not None, "only crons with a registry are polled by nodes"
    mounts = [{"name": _SHARED, "mountPath": _SHARED_PATH}]
    placement = encode(pollers.placement)
    if registry.platform is not None and registry.platform.architecture:
        selector = get_object(placement, "nodeSelector")
        placement["nodeSelector"] = {**selector, _ARCHITECTURE: registry.platform.architecture}
    common: JsonObject = {
        "volumeMounts": mounts,
        "securityContext": restricted_container(WORKER_USER),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    prepare = ["sh", "-c", "cp /usr/bin/cdi-containerimage-server /shared/server"]
    spec: JsonObject = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "volumes": [{"name": _SHARED, "emptyDir": {}}],
        "initContainers": [
            {
                "name": COPY_CONTAINER,
                "image": pollers.image,
                "imagePullPolicy": pollers.pull_policy,
                "command": pollers.commands.get(COPY_CONTAINER, prepare),
                **common,
            }
        ],
        "containers": [
            {
                "name": IMAGE_CONTAINER,
                "image": sources.image_of(registry.url or ""),
                "imagePullPolicy": "Always",
                "command": pollers.commands.get(IMAGE_CONTAINER, ["/shared/server", "-h"]),
                **common,
            }
        ],
        **placement,
    }
    owner = encode(controller_reference(cron, resources.DATA_IMPORT_CRONS))
    metadata = {
        "name": cdi_names.poller_pod(cron.metadata.name, cron.metadata.uid),
        "namespace": cron.metadata.namespace,
        "ownerReferences": [owner],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def cron_job_patch(found: JsonObject, wanted: JsonObject) -> JsonObject:
    """The merge patch that makes a CronJob as `wanted`; empty where it is.

    The API server fills in defaults, so what is there may say more.
    """
    template = ("jobTemplate", "spec", "template", "spec")
    before, after = get_object(found, "spec"), get_object(wanted, "spec")
    pod, wanted_pod = get_object(before, *template), get_object(after, *template)
    gone = [name for name in _OPTIONAL if pod.get(name) and not wanted_pod.get(name)]
    same_environment = _environments(pod) == _environments(wanted_pod)
    if _covers(before, after) and not gone and same_environment:
        return {}
    spec = {**wanted_pod, **dict.fromkeys(gone)}
    job = {**after["jobTemplate"]["spec"]}
    job["template"] = {**job["template"], "spec": spec}
    return {"spec": {**after, "jobTemplate": {"spec": job}}}


def _environments(pod: JsonObject) -> list[list[str]]:
    return [[each["name"] for each in get_list(one, "env")] for one in get_list(pod, "containers")]


def _covers(found: Any, wanted: Any) -> bool:
    """Whether `found` says all that `wanted` says."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            _covers(found.get(name), value) for name, value in wanted.items()
        )
    if isinstance(wanted, list):
        if not isinstance(found, list):
            return not wanted and found is None
        return len(found) == len(wanted) and all(map(_covers, found, wanted))
    return bool(found == wanted)
