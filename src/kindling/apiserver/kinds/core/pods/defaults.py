"""Defaults of pods and pod templates."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from kubecore.json import JsonObject, get_list, get_object

MODE_0644 = 0o644
TOKEN_SECONDS = 3600
APPARMOR_ANNOTATION = "container.apparmor.security.beta.kubernetes.io/"
"""Prefix of the annotations that named containers' profiles before there was a field."""

_WORD = "[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"(?P<name>{_WORD}(?:/{_WORD})*)(?::(?P<tag>\w[\w.-]{{0,127}}))?"
    r"(?P<digest>@[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?",
    re.ASCII,
)
"""An image's name below its registry, with tag and digest."""
_LABEL = "[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_REGISTRY = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9a-fA-F:]+\])(?::[0-9]+)?")
_MAX_IMAGE_NAME = 255
_LITERAL_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "configMap": {"defaultMode": MODE_0644},
    "secret": {"defaultMode": MODE_0644},
    "downwardAPI": {"defaultMode": MODE_0644},
    "projected": {"defaultMode": MODE_0644},
    "hostPath": {"type": ""},
    "iscsi": {"iscsiInterface": "default"},
    "rbd": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
    "azureDisk": {"cachingMode": "ReadWrite", "fsType": "ext4", "readOnly": False, "kind": "Shared"},
    "scaleIO": {"storageMode": "ThinProvisioned", "fsType": "xfs"},
}


def image_tag(image: str) -> str:
    """The tag of an image: ``latest`` without tag and digest; empty for a digest or no image at all."""
    registry, _, rest = image.partition("/")
    named = bool(rest) and (
        set(registry) & set(".:") or registry == "localhost" or registry != registry.lower()
    )
    found = _REFERENCE.fullmatch(rest if named else image)
    if found is None or len(found["name"]) > _MAX_IMAGE_NAME or (named and not _REGISTRY.fullmatch(registry)):
        return ""
    return found["tag"] or ("" if found["digest"] else "latest")


def pull_policy(image: str) -> str:
    """What imagePullPolicy defaults to: Always for ``latest``."""
    return "Always" if image_tag(image) == "latest" else "IfNotPresent"


def default_claim_spec(spec: JsonObject) -> None:
    """Volume mode of a claim (or claim template)."""
    spec.setdefault("volumeMode", "Filesystem")


def all_containers(spec: Mapping[str, Any]) -> Iterator[JsonObject]:
    """Init, regular and ephemeral containers of a pod spec."""
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for container in get_list(spec, field):
            if isinstance(container, dict):
                yield container


def default_pod_spec(spec: JsonObject) -> None:
    """The defaults that pods and pod templates share, in place."""
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("securityContext", {})
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("schedulerName", "default-scheduler")
    # The deprecated name of the field follows the new one; templates may be written with either.
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    for volume in get_list(spec, "volumes"):
        _default_volume(volume)
    for container in all_containers(spec):
        _default_container(container)


def _default_volume(volume: JsonObject) -> None:
    sources = [name for name in volume if name != "name"]
    if not sources:
        volume["emptyDir"] = {}
        return
    default_sources(volume)
    _default_downward_items(get_object(volume, "downwardAPI"))
    for projection in get_list(volume, "projected", "sources"):
        for gated in ("clusterTrustBundle", "podCertificate"):
            # Their feature gates are off by default, and fields of such features are dropped.
            projection.pop(gated, None)
        token = projection.get("serviceAccountToken")
        if isinstance(token, dict):
            token.setdefault("expirationSeconds", TOKEN_SECONDS)
        _default_downward_items(get_object(projection, "downwardAPI"))
    claim = get_object(volume, "ephemeral", "volumeClaimTemplate", "spec")
    if claim:
        default_claim_spec(claim)
    image = volume.get("image")
    if isinstance(image, dict):
        image.setdefault("pullPolicy", pull_policy(image.get("reference", "")))


def default_sources(holder: JsonObject) -> None:
    """Set the defaults of the sources in a volume or in a persistent volume's spec."""
    for name, defaults in _LITERAL_DEFAULTS.items():
        source = holder.get(name)
        if isinstance(source, dict):
            source.update({field: value for field, value in defaults.items() if field not in source})


def _default_downward_items(source: JsonObject) -> None:
    for item in get_list(source, "items"):
        reference = item.get("fieldRef")
        if isinstance(reference, dict):
            reference.setdefault("apiVersion", "v1")


def _default_container(container: JsonObject) -> None:
    container.setdefault("imagePullPolicy", pull_policy(container.get("image", "")))
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    for port in get_list(container, "ports"):
        port.setdefault("protocol", "TCP")
    for variable in get_list(container, "env"):
        reference = get_object(variable, "valueFrom").get("fieldRef")
        if isinstance(reference, dict):
            reference.setdefault("apiVersion", "v1")
        file_reference = get_object(variable, "valueFrom").get("fileKeyRef")
        if isinstance(file_reference, dict):
            file_reference.setdefault("optional", False)
    for field in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe = container.get(field)
        if isinstance(probe, dict):
            _default_probe(probe)
    for hook in get_object(container, "lifecycle").values():
        if isinstance(hook, dict):
            _default_http(hook)


def _default_probe(probe: JsonObject) -> None:
    probe.setdefault("timeoutSeconds", 1)
    probe.setdefault("periodSeconds", 10)
    probe.setdefault("successThreshold", 1)
    probe.setdefault("failureThreshold", 3)
    grpc = probe.get("grpc")
    if isinstance(grpc, dict) and grpc.get("service") is None:
        grpc["service"] = ""
    _default_http(probe)


def _default_http(handler: JsonObject) -> None:
    http = handler.get("httpGet")
    if isinstance(http, dict):
        http.setdefault("path", "/")
        http.setdefault("scheme", "HTTP")


def adopt_apparmor_annotations(pod: JsonObject) -> None:
    """Turn the deprecated annotation of a container into the field, where the field says nothing.

    A profile that the whole pod has already is not repeated; unknown values stay annotations.
    """
    annotations = get_object(pod, "metadata", "annotations")
    of_pod = get_object(pod, "spec", "securityContext").get("appArmorProfile")
    for container in all_containers(get_object(pod, "spec")):
        profile = _apparmor_profile(str(annotations.get(f"{APPARMOR_ANNOTATION}{container.get('name')}", "")))
        if profile is None or profile == of_pod:
            continue
        if get_object(container, "securityContext").get("appArmorProfile") is None:
            container["securityContext"] = {
                **get_object(container, "securityContext"),
                "appArmorProfile": profile,
            }


def _apparmor_profile(annotation: str) -> JsonObject | None:
    known = {"runtime/default": "RuntimeDefault", "unconfined": "Unconfined"}
    if annotation in known:
        return {"type": known[annotation]}
    local = annotation.removeprefix("localhost/")
    if local and local != annotation:
        return {"type": "Localhost", "localhostProfile": local}
    return None


def default_pod(pod: JsonObject) -> None:
    """Defaults of pods alone: requests from limits, service links, host ports of host-network pods."""
    spec = pod.setdefault("spec", {})
    default_pod_spec(spec)
    for field in ("initContainers", "containers"):
        for container in get_list(spec, field):
            resources = get_object(container, "resources")
            if resources.get("limits"):
                resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}
    spec.setdefault("enableServiceLinks", True)
    if spec.get("hostNetwork"):
        for field in ("initContainers", "containers"):
            for container in get_list(spec, field):
                for port in get_list(container, "ports"):
                    if not port.get("hostPort"):
                        port["hostPort"] = port.get("containerPort", 0)
