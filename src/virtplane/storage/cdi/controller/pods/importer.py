"""The importer pod: a pure function of the claim that it fills and of what was found for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from kubecore.json import JsonObject
from virtplane.api import cdi_labels as names
from virtplane.api import cdi_names
from virtplane.api.cdi_v1beta1.cdi_config import ImportProxy
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.storage.cdi.controller import claims, sources
from virtplane.storage.cdi.controller.pods import worker
from virtplane.storage.cdi.controller.pods.worker import Workers
from virtplane.storage.cdi.rendering import ARCHIVE, content_type

CONTAINER = "importer"
COPY_CONTAINER = "init"
"""The init container that brings the program of the next one."""
SERVER_CONTAINER = "server"
"""The container with an image that the node has pulled."""
SHARED_PATH = "/shared"
READY = f"{SHARED_PATH}/ready"
DONE = f"{SHARED_PATH}/done"
ENVIRONMENT = f"{SHARED_PATH}/environment"
SERVER_PORT = "8100"
_NODE = "node"
_ARCHITECTURE = "kubernetes.io/arch"
_SHARED = "shared-volume"
_CACHE_DIRECT = "TRYNONE"


@dataclass(frozen=True, slots=True)
class Import:
    """What an importer pod depends on besides its claim.

    `target` has the uid that progress is told for, and the labels that the pod takes over: it is the claim
    that a prime claim is filled for, else the claim itself.
    """

    target: PersistentVolumeClaim
    overhead: str
    """The share of the volume that its file system takes."""
    has_scratch: bool = False
    proxy: ImportProxy = field(default_factory=ImportProxy)
    vddk_image: str = ""
    vddk_node_selector: Mapping[str, str] = field(default_factory=dict)


def source_of(claim: PersistentVolumeClaim) -> str:
    """The kind of source: what nobody knows is a web server."""
    kind = claims.value(claim, names.IMPORT_SOURCE)
    return kind if kind in sources.KINDS else sources.HTTP


def is_pulled_by_node(claim: PersistentVolumeClaim) -> bool:
    """Whether the kubelet fetches the container image, and the importer asks a container of it."""
    return source_of(claim) == sources.REGISTRY and claims.value(claim, names.IMPORT_REGISTRY_METHOD) == _NODE


def is_image_stream(claim: PersistentVolumeClaim) -> bool:
    """Whether the image is that of an image stream, whose name the cluster resolves in pods without owner."""
    return is_pulled_by_node(claim) and claims.is_true(claim.metadata, names.IMPORT_REGISTRY_IMAGE_STREAM)


def pod_name(claim: PersistentVolumeClaim) -> str:
    """The name of the claim's importer pod: each checkpoint has its own."""
    checkpoint = claims.value(claim, names.CHECKPOINT_CURRENT)
    name = claim.metadata.name
    return cdi_names.checkpoint_pod(name, checkpoint) if checkpoint else cdi_names.importer_pod(name)


def needs_scratch(claim: PersistentVolumeClaim) -> bool:
    """Whether the importer is known to need scratch space before it has looked at its source."""
    source = source_of(claim)
    if claims.is_true(claim.metadata, names.IMPORT_REQUIRES_SCRATCH) or source == sources.GLANCE:
        return True
    if content_type(claims.value(claim, names.CONTENT_TYPE)) == ARCHIVE:
        return True
    if source == sources.IMAGEIO:
        return claims.is_multi_stage(claim)
    return source == sources.REGISTRY and not is_pulled_by_node(claim)


def importer_pod(workers: Workers, claim: PersistentVolumeClaim, wanted: Import) -> JsonObject:
    """The pod that imports into `claim`."""
    volumes, mounts = _volumes(claim, wanted)
    environment = [_variable(name, text) for name, text in _environment(workers, claim, wanted)]
    container = worker.container(
        workers,
        CONTAINER,
        workers.importer_image,
        args=[f"-v={workers.verbosity}"],
        ports=[{"name": "metrics", "containerPort": worker.PORT, "protocol": "TCP"}],
        env=environment + list(_credentials(claim)),
        **worker.data_access(claim),
    )
    if mounts:
        container["volumeMounts"] = [*container.get("volumeMounts", ()), *mounts]
    spec: JsonObject = {"containers": [container], "volumes": volumes}
    if is_pulled_by_node(claim):
        _add_server(workers, claim, spec)
    if source_of(claim) == sources.VDDK:
        mount = {"name": "vddk-vol-mount", "mountPath": "/opt"}
        side_car = worker.container(workers, "vddk-side-car", wanted.vddk_image, volumeMounts=[mount])
        spec["initContainers"] = [side_car]
    if selector := _node_selector(claim, wanted):
        spec["nodeSelector"] = selector
    return worker.pod(workers, claim, pod_name(claim), _metadata(workers, claim, wanted), spec)


def _metadata(workers: Workers, claim: PersistentVolumeClaim, wanted: Import) -> JsonObject:
    own = {names.CREATED_BY_CONTROLLER: "yes"}
    labels = {
        "app": names.APP,
        **wanted.target.metadata.labels,
        names.COMPONENT: names.IMPORTER,
        names.PROMETHEUS: "true",
        **workers.recommended_labels,
    }
    metadata: JsonObject = {"labels": labels}
    if is_image_stream(claim):
        own[names.RESOLVE_NAMES] = "*"
    else:
        metadata["ownerReferences"] = [worker.owner(claim)]
    return metadata | {"annotations": worker.pod_annotations(claim, own)}


def _node_selector(claim: PersistentVolumeClaim, wanted: Import) -> dict[str, str]:
    architecture = claims.value(claim, names.IMPORT_REGISTRY_ARCHITECTURE)
    if is_pulled_by_node(claim) and architecture:
        return {_ARCHITECTURE: architecture}
    return dict(wanted.vddk_node_selector)


def _add_server(workers: Workers, claim: PersistentVolumeClaim, spec: JsonObject) -> None:
    """The container with the image, which serves its disk to the importer beside it."""
    mount = {"name": _SHARED, "mountPath": SHARED_PATH}
    image = claims.value(claim, names.IMPORT_ENDPOINT).removeprefix("docker://")
    command = [f"{SHARED_PATH}/server", "-p", SERVER_PORT, "-image-dir", "/disk"]
    command += ["-ready-file", READY, "-done-file", DONE]
    copy = ["sh", "-c", f"cp /usr/bin/cdi-containerimage-server {SHARED_PATH}/server"]
    spec["initContainers"] = [
        worker.container(workers, COPY_CONTAINER, workers.importer_image, command=copy, volumeMounts=[mount])
    ]
    spec["containers"].append(
        worker.container(workers, SERVER_CONTAINER, image, command=command, volumeMounts=[mount])
    )


def _volumes(claim: PersistentVolumeClaim, wanted: Import) -> tuple[list[JsonObject], list[JsonObject]]:
    """The volumes of the pod, and how the importer mounts all but the first, which it fills."""
    volumes = [worker.claim_volume(worker.DATA_VOLUME, claim.metadata.name)]
    mounts: list[JsonObject] = []

    def add(name: str, path: str, **source: JsonObject) -> None:
        volumes.append({"name": name, **source})
        mounts.append({"name": name, "mountPath": path})

    if wanted.has_scratch:
        scratch = {"claimName": cdi_names.scratch_claim(claim.metadata.name)}
        add(worker.SCRATCH_VOLUME, worker.SCRATCH_PATH, persistentVolumeClaim=scratch)
    if certificates := claims.value(claim, names.IMPORT_CERT_CONFIG_MAP):
        add("cdi-cert-vol", "/certs", configMap={"name": certificates})
    if wanted.proxy.trusted_ca_proxy:
        copy = {"name": cdi_names.proxy_config_map(claim.metadata.name)}
        add("cdi-proxy-cert-vol", "/proxycerts/", configMap=copy)
    for number, secret in enumerate(_numbered(claim, names.IMPORT_SECRET_EXTRA_HEADERS_PREFIX)):
        name = f"cdi-secret-extra-headers-vol-{number}"
        add(name, f"/extraheaders/{number}", secret={"secretName": secret})
    secret = claims.value(claim, names.IMPORT_SECRET)
    if source_of(claim) == sources.GCS and secret:
        add("cdi-secret-vol", "/google", secret={"secretName": secret})
    if is_pulled_by_node(claim):
        add(_SHARED, SHARED_PATH, emptyDir={})
    if source_of(claim) == sources.VDDK:
        add("vddk-vol-mount", "/opt", emptyDir={})
        if arguments := claims.value(claim, names.POD_VDDK_EXTRA_ARGS):
            add("vddk-extra-args", "/vddk-args", configMap={"name": arguments})
    return volumes, mounts


def _environment(workers: Workers, claim: PersistentVolumeClaim, wanted: Import) -> Iterator[tuple[str, str]]:
    def given(name: str) -> str:
        return claims.value(claim, name)

    by_node, proxy = is_pulled_by_node(claim), wanted.proxy
    endpoint = f"http://localhost:{SERVER_PORT}/disk.img" if by_node else given(names.IMPORT_ENDPOINT)
    yield "IMPORTER_SOURCE", sources.HTTP if by_node else source_of(claim)
    yield "IMPORTER_ENDPOINT", endpoint
    yield "IMPORTER_CONTENTTYPE", content_type(given(names.CONTENT_TYPE))
    yield "IMPORTER_IMAGE_SIZE", claims.requested(claim)
    yield "OWNER_UID", wanted.target.metadata.uid
    yield "FILESYSTEM_OVERHEAD", wanted.overhead
    yield "INSECURE_TLS", _truth(_is_insecure(workers, claim))
    yield "IMPORTER_DISK_ID", given(names.IMPORT_DISK_ID)
    yield "IMPORTER_UUID", given(names.IMPORT_UUID)
    yield "IMPORTER_PULL_METHOD", given(names.IMPORT_REGISTRY_METHOD)
    yield "IMPORTER_READY_FILE", READY if by_node else ""
    yield "IMPORTER_DONE_FILE", DONE if by_node else ""
    yield "IMPORTER_BACKING_FILE", given(names.IMPORT_BACKING_FILE)
    yield "IMPORTER_THUMBPRINT", given(names.IMPORT_VDDK_THUMBPRINT)
    yield "http_proxy", proxy.http_proxy or ""
    yield "https_proxy", proxy.https_proxy or ""
    yield "no_proxy", proxy.no_proxy or ""
    yield "IMPORTER_CURRENT_CHECKPOINT", given(names.CHECKPOINT_CURRENT)
    yield "IMPORTER_PREVIOUS_CHECKPOINT", given(names.CHECKPOINT_PREVIOUS)
    yield "IMPORTER_FINAL_CHECKPOINT", given(names.CHECKPOINT_FINAL)
    yield "PREALLOCATION", _truth(given(names.PREALLOCATION_REQUESTED) == claims.TRUE)
    yield "CACHE_MODE", _CACHE_DIRECT if given(names.IMPORT_REQUIRES_DIRECT_IO) == claims.TRUE else ""
    yield "IMPORTER_REGISTRY_IMAGE_ARCHITECTURE", given(names.IMPORT_REGISTRY_ARCHITECTURE)
    yield "IMPORTER_CHECKSUM", given(names.IMPORT_CHECKSUM)
    if given(names.IMPORT_CERT_CONFIG_MAP):
        yield "IMPORTER_CERT_DIR", "/certs"
    if proxy.trusted_ca_proxy:
        yield "IMPORTER_PROXY_CERT_DIR", "/proxycerts/"
    for number, header in enumerate(_numbered(claim, names.IMPORT_EXTRA_HEADERS_PREFIX)):
        yield f"IMPORTER_EXTRA_HEADER_{number}", header


def _credentials(claim: PersistentVolumeClaim) -> Iterator[JsonObject]:
    secret = claims.value(claim, names.IMPORT_SECRET)
    if not secret:
        return
    if source_of(claim) == sources.GCS:
        yield {"name": "GOOGLE_APPLICATION_CREDENTIALS", "value": "/google/credentials.json"}
        return
    for variable, key in (("IMPORTER_ACCESS_KEY_ID", "accessKeyId"), ("IMPORTER_SECRET_KEY", "secretKey")):
        yield {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def _is_insecure(workers: Workers, claim: PersistentVolumeClaim) -> bool:
    source = source_of(claim)
    if source in (sources.HTTP, sources.IMAGEIO):
        return claims.is_true(claim.metadata, names.IMPORT_INSECURE)
    scheme, _, rest = claims.value(claim, names.IMPORT_ENDPOINT).partition("://")
    if source != sources.REGISTRY or scheme != "docker" or is_pulled_by_node(claim):
        return False
    return rest.partition("/")[0] in workers.insecure_registries


def _numbered(claim: PersistentVolumeClaim, prefix: str) -> list[str]:
    """The values of the annotations with `prefix`, by what follows it."""
    found = [name for name in claim.metadata.annotations if name.startswith(prefix)]
    return [claim.metadata.annotations[name] for name in sorted(found, key=lambda name: (len(name), name))]


def _variable(name: str, text: str) -> JsonObject:
    return {"name": name, "value": text} if text else {"name": name}


def _truth(found: bool) -> str:
    return claims.TRUE if found else claims.FALSE
