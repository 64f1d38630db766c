"""Volume sources of pods and persistent volumes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kindling.apiserver.kinds.machinery.checks import amount, messages, one_of, required_text
from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects import names
from kubecore.objects.fields import (
    FieldError,
    FieldPath,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
)
from kubecore.objects.quantity import Quantity

from .claim_validation import validate_claim_spec

MODE = "must be a number between 0 and 0777 (octal), both inclusive"
HOST_PATH_TYPES = (
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
)
DOWNWARD_FIELDS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.labels",
    "metadata.annotations",
    "metadata.uid",
)
Check = Callable[[JsonObject, FieldPath], list[FieldError]]


def file_mode(path: FieldPath, mode: Any) -> list[FieldError]:
    """Permission bits, or none."""
    return [invalid(path, mode, MODE)] if mode is not None and not 0 <= mode <= 0o777 else []


def no_backsteps(path: FieldPath, value: str) -> list[FieldError]:
    """A path without ``..`` elements."""
    return [invalid(path, value, "must not contain '..'")] if ".." in value.split("/") else []


def local_path(path: FieldPath, value: str) -> list[FieldError]:
    """A relative path within a volume."""
    if not value:
        return [required(path)]
    if value.startswith("/"):
        return [invalid(path, value, "must be a relative path")]
    return no_backsteps(path, value)


def local_non_reserved_path(path: FieldPath, value: str) -> list[FieldError]:
    """A relative path that does not start with ``..`` either."""
    found = local_path(path, value)
    if value.startswith("..") and not value.startswith("../"):
        found.append(invalid(path, value, "must not start with '..'"))
    return found


def _key_to_path(items: Sequence[JsonObject], path: FieldPath) -> list[FieldError]:
    found: list[FieldError] = []
    for position, item in enumerate(items):
        here = path.index(position)
        found += required_text(here.child("key"), item.get("key"))
        found += local_non_reserved_path(here.child("path"), item.get("path", ""))
        found += file_mode(here.child("mode"), item.get("mode"))
    return found


def _empty_dir(source: JsonObject, path: FieldPath) -> list[FieldError]:
    limit = source.get("sizeLimit")
    found: list[FieldError] = []
    if limit is not None and amount(limit) < Quantity.parse("0"):
        found.append(forbidden(path.child("sizeLimit"), "SizeLimit field must be a valid resource quantity"))
    return found


def host_path(source: JsonObject, path: FieldPath) -> list[FieldError]:
    """A path of the node."""
    value = source.get("path", "")
    if not value:
        return [required(path.child("path"))]
    found = no_backsteps(path.child("path"), value)
    return found + one_of(path.child("type"), source.get("type", ""), HOST_PATH_TYPES)


def _config_map(source: JsonObject, path: FieldPath) -> list[FieldError]:
    found = required_text(path.child("name"), source.get("name"))
    found += file_mode(path.child("defaultMode"), source.get("defaultMode"))
    return found + _key_to_path(get_list(source, "items"), path.child("items"))


def _secret(source: JsonObject, path: FieldPath) -> list[FieldError]:
    found = required_text(path.child("secretName"), source.get("secretName"))
    found += file_mode(path.child("defaultMode"), source.get("defaultMode"))
    return found + _key_to_path(get_list(source, "items"), path.child("items"))


def _downward_file(item: JsonObject, path: FieldPath) -> list[FieldError]:
    found = local_non_reserved_path(path.child("path"), item.get("path", ""))
    field, resource = item.get("fieldRef"), item.get("resourceFieldRef")
    if isinstance(field, dict):
        found += field_reference(field, path.child("fieldRef"), DOWNWARD_FIELDS)
        if resource is not None:
            found.append(
                invalid(path, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously")
            )
    elif isinstance(resource, dict):
        found += resource_reference(resource, path.child("resourceFieldRef"), volume=True)
    else:
        found.append(required(path.child("fieldRef"), "one of fieldRef and resourceFieldRef is required"))
    return found + file_mode(path.child("mode"), item.get("mode"))


def _downward_api(source: JsonObject, path: FieldPath) -> list[FieldError]:
    found = file_mode(path.child("defaultMode"), source.get("defaultMode"))
    for item in get_list(source, "items"):
        found += _downward_file(item, path)
    return found


def field_reference(reference: JsonObject, path: FieldPath, allowed: Sequence[str]) -> list[FieldError]:
    """A field of the pod that an environment variable or file shows."""
    if not reference.get("apiVersion"):
        return [required(path.child("apiVersion"))]
    field = reference.get("fieldPath", "")
    if not field:
        return [required(path.child("fieldPath"))]
    base, bracket, key = field.partition("[")
    if bracket:
        key = key.strip("]'\"")
        if base == "metadata.annotations":
            return messages(path, key, lambda value: names.is_qualified_name(value.lower()))
        if base == "metadata.labels":
            return messages(path, key, names.is_qualified_name)
        return [invalid(path, field, "does not support subscript")]
    if reference["apiVersion"] != "v1" or not _is_pod_field(field):
        text = f"error converting fieldPath: field label not supported: {field}"
        return [invalid(path.child("fieldPath"), field, text)]
    return [] if field in allowed else [not_supported(path.child("fieldPath"), field, sorted(allowed))]


_POD_FIELDS = frozenset(
    {
        *DOWNWARD_FIELDS,
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.serviceAccountName",
        "spec.schedulerName",
        "spec.hostNetwork",
        "status.phase",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
        "status.podIPs",
        "status.nominatedNodeName",
    }
)


def _is_pod_field(field: str) -> bool:
    return field in _POD_FIELDS


_CONTAINER_RESOURCES = (
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
)


def resource_reference(reference: JsonObject, path: FieldPath, *, volume: bool) -> list[FieldError]:
    """A container's request or limit that an environment variable or file shows."""
    found: list[FieldError] = []
    if volume and not reference.get("containerName"):
        found.append(required(path.child("containerName")))
    resource = reference.get("resource", "")
    if not resource:
        found.append(required(path.child("resource")))
    elif resource not in _CONTAINER_RESOURCES and not resource.startswith(
        ("limits.hugepages-", "requests.hugepages-")
    ):
        found.append(not_supported(path.child("resource"), resource, _CONTAINER_RESOURCES))
    return found


def _projected(source: JsonObject, path: FieldPath) -> list[FieldError]:
    found = file_mode(path.child("defaultMode"), source.get("defaultMode"))
    taken: set[str] = set()
    for position, projection in enumerate(get_list(source, "sources")):
        here = path.child("sources").index(position)
        if len([key for key, value in projection.items() if value is not None]) > 1:
            found.append(forbidden(here, "may not specify more than 1 volume type per source"))
            continue
        for kind, part in projection.items():
            at = here.child(kind)
            found += _projection(kind, part or {}, at)
            for target in _projected_paths(kind, part or {}):
                if target in taken:
                    found.append(invalid(path, target, "conflicting duplicate paths"))
                taken.add(target)
    return found


def _projection(kind: str, part: JsonObject, path: FieldPath) -> list[FieldError]:
    match kind:
        case "secret" | "configMap":
            found = required_text(path.child("name"), part.get("name"))
            return found + _key_to_path(get_list(part, "items"), path.child("items"))
        case "downwardAPI":
            return [error for item in get_list(part, "items") for error in _downward_file(item, path)]
        case "serviceAccountToken":
            return _token_projection(part, path)
        case "clusterTrustBundle":
            return required_text(path.child("path"), part.get("path"))
    return []


def _token_projection(part: JsonObject, path: FieldPath) -> list[FieldError]:
    found: list[FieldError] = []
    seconds = part.get("expirationSeconds", 3600)
    if seconds < 600:
        text = "may not specify a duration less than 10 minutes"
        found.append(invalid(path.child("expirationSeconds"), seconds, text))
    if seconds > 2**32:
        text = "may not specify a duration larger than 2^32 seconds"
        found.append(invalid(path.child("expirationSeconds"), seconds, text))
    return found + local_non_reserved_path(path.child("path"), part.get("path", ""))


def _projected_paths(kind: str, part: JsonObject) -> list[str]:
    if kind in ("serviceAccountToken", "clusterTrustBundle"):
        return [part.get("path", "")]
    return [item.get("path", "") for item in get_list(part, "items")]


def _needs(*fields: str) -> Check:
    """Sources whose rules are that some fields are given."""

    def check(source: JsonObject, path: FieldPath) -> list[FieldError]:
        return [error for field in fields for error in required_text(path.child(field), source.get(field))]

    return check


def _csi(source: JsonObject, path: FieldPath) -> list[FieldError]:
    found = csi_driver_name(path.child("driver"), source.get("driver", ""))
    reference = source.get("nodePublishSecretRef")
    if isinstance(reference, dict):
        found += required_text(path.child("nodePublishSecretRef", "name"), reference.get("name"))
    return found


def csi_driver_name(path: FieldPath, name: str) -> list[FieldError]:
    """A CSI driver: a domain, up to 63 characters."""
    if not name:
        return [required(path)]
    found = [invalid(path, name, "must be 63 characters or less")] if len(name) > 63 else []
    return found + messages(path, name, lambda value: names.is_dns1123_subdomain(value.lower()))


def _nfs(source: JsonObject, path: FieldPath) -> list[FieldError]:
    found = required_text(path.child("server"), source.get("server")) + required_text(
        path.child("path"), source.get("path")
    )
    if source.get("path") and not source["path"].startswith("/"):
        found.append(invalid(path.child("path"), source["path"], "must be an absolute path"))
    return found


def _iscsi(source: JsonObject, path: FieldPath) -> list[FieldError]:
    found = required_text(path.child("targetPortal"), source.get("targetPortal"))
    iqn = source.get("iqn", "")
    if not iqn:
        found.append(required(path.child("iqn")))
    elif not iqn.startswith(("iqn", "eui", "naa")):
        found.append(invalid(path.child("iqn"), iqn, "must be valid format starting with iqn, eui, or naa"))
    lun = source.get("lun", 0)
    if not 0 <= lun <= 255:
        found.append(invalid(path.child("lun"), lun, "must be between 0 and 255, inclusive"))
    return found


def _ephemeral(source: JsonObject, path: FieldPath) -> list[FieldError]:
    template = source.get("volumeClaimTemplate")
    if template is None:
        return [required(path.child("volumeClaimTemplate"))]

    return validate_claim_spec(get_object(template, "spec"), path.child("volumeClaimTemplate", "spec"))


def _image(source: JsonObject, path: FieldPath) -> list[FieldError]:
    found = required_text(path.child("reference"), source.get("reference"))
    policy = source.get("pullPolicy", "")
    return found + (
        one_of(path.child("pullPolicy"), policy, ("Always", "IfNotPresent", "Never")) if policy else []
    )


SOURCES: Mapping[str, Check] = {
    "emptyDir": _empty_dir,
    "hostPath": host_path,
    "gitRepo": _needs("repository"),
    "gcePersistentDisk": _needs("pdName"),
    "awsElasticBlockStore": _needs("volumeID"),
    "secret": _secret,
    "nfs": _nfs,
    "iscsi": _iscsi,
    "glusterfs": _needs("endpoints", "path"),
    "flocker": _needs(),
    "persistentVolumeClaim": _needs("claimName"),
    "rbd": _needs("monitors", "image"),
    "cinder": _needs("volumeID"),
    "cephfs": _needs("monitors"),
    "quobyte": _needs("registry", "volume"),
    "downwardAPI": _downward_api,
    "fc": _needs(),
    "flexVolume": _needs("driver"),
    "configMap": _config_map,
    "azureFile": _needs("secretName", "shareName"),
    "vsphereVolume": _needs("volumePath"),
    "photonPersistentDisk": _needs("pdID"),
    "portworxVolume": _needs("volumeID"),
    "azureDisk": _needs("diskName", "diskURI"),
    "storageos": _needs(),
    "projected": _projected,
    "scaleIO": _needs("gateway", "system", "volumeName"),
    "csi": _csi,
    "ephemeral": _ephemeral,
    "image": _image,
    "local": _needs("path"),
}
_POD_ORDER = tuple(name for name in SOURCES if name != "local")


def validate_sources(
    holder: JsonObject, path: FieldPath, order: Sequence[str] = _POD_ORDER
) -> tuple[int, list[FieldError]]:
    """How many sources there are, and what is wrong with the first or that there are more."""
    count = 0
    found: list[FieldError] = []
    for name in order:
        source = holder.get(name)
        if not isinstance(source, dict):
            continue
        at = path.child(name)
        if count:
            found.append(forbidden(at, "may not specify more than 1 volume type"))
        else:
            count += 1
            found += SOURCES[name](source, at)
    return count, found


def validate_pod_volumes(volumes: Sequence[JsonObject], path: FieldPath) -> list[FieldError]:
    """spec.volumes of a pod."""
    found: list[FieldError] = []
    seen: set[str] = set()
    for position, volume in enumerate(volumes):
        here = path.index(position)
        name = volume.get("name", "")
        count, problems = validate_sources(volume, here)
        if not count:
            problems.append(required(here, "must specify a volume type"))
        if not name:
            problems.append(required(here.child("name")))
        else:
            problems += messages(here.child("name"), name, names.is_dns1123_label)
        if name in seen:
            problems.append(duplicate(here.child("name"), name))
        seen.add(name)
        found += problems
    return found
