"""Volume sources of pods and persistent volumes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kindling.apiserver.kinds.machinery import fields as f
from kindling.apiserver.kinds.machinery.checks import amount, messages
from kubecore.json import JsonObject, get_list
from kubecore.objects import names
from kubecore.objects.fields import (
    FieldError,
    FieldPath,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
)
from kubecore.objects.meta_validation import validate_annotations
from kubecore.objects.quantity import Quantity
from kubecore.objects.selectors import validate_labels

from .claim_validation import validate_claim_spec
from .projections import DEFAULT_MODE, KEYS, LOCAL_PATH, NO_BACKSTEPS, downward_files, projected

_ISCSI_NAMES = (
    re.compile(r"iqn\.\d{4}-\d{2}\.[A-Za-z0-9-.]+(:[^,;*&$|\s]+)"),
    re.compile(r"eui.[A-Za-z0-9]{16}"),
    re.compile(r"naa.[A-Za-z0-9]{32}"),
)
_QUOBYTE_REGISTRY = "must be a host:port pair or multiple pairs separated by commas"
_BLOB = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
_MANAGED = "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
_TEMPLATE_METADATA = {
    **{name: name for name in ("name", "generateName", "namespace", "selfLink")},
    "uid": "uID",
    **{name: name for name in ("resourceVersion", "generation", "creationTimestamp", "deletionTimestamp")},
    **{name: name for name in ("deletionGracePeriodSeconds", "ownerReferences", "finalizers")},
    "managedFields": "managedFields",
}
"""What a claim's template may not set, and how errors call it."""


def csi_driver_name(path: FieldPath, name: str) -> Iterator[FieldError]:
    """A CSI driver: a domain, up to 63 characters."""
    if not name:
        yield required(path)
        return
    if len(name) > 63:
        yield too_long(path, 63)
    yield from messages(path, name, lambda value: names.is_dns1123_subdomain(value.lower()))


def _empty_dir(path: FieldPath, source: JsonObject) -> list[FieldError]:
    if amount(source.get("sizeLimit")) < Quantity.parse("0"):
        return [forbidden(path.child("sizeLimit"), "SizeLimit field must be a valid resource quantity")]
    return []


def host_path(path: FieldPath, source: JsonObject) -> list[FieldError]:
    """A path of the node."""
    kinds = ("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate")
    if not source.get("path"):
        return [required(path.child("path"))]
    return f.check_fields(
        source, path, f.may("path", NO_BACKSTEPS), f.given("type", f.choice(*kinds, "Socket"))
    )


_LUN = f.between(0, 255)
_PARTITION = f.given("partition", f.between(0, 255, "must be between 1 and 255, inclusive"))
_ABSOLUTE = f.refused(lambda path: not path.startswith("/"), "must be an absolute path")


def _iscsi_name(path: FieldPath, value: str, foreign: str) -> list[FieldError]:
    if not value.startswith(("iqn", "eui", "naa")):
        return [invalid(path, value, f"must be valid format{foreign}")]
    fits = any(rule.fullmatch(value) for rule in _ISCSI_NAMES)
    return [] if fits else [invalid(path, value, "must be valid format")]


def iscsi(path: FieldPath, source: JsonObject, *, volume: str | None = None) -> Iterator[FieldError]:
    """A disk by iSCSI: of a pod, or of the persistent volume of this name."""
    portal, initiator, secret = (source.get(key) for key in ("targetPortal", "initiatorName", "secretRef"))
    foreign = " starting with iqn, eui, or naa" if volume is None else ""
    yield from f.check_fields(source, path, f.must("targetPortal"))
    if volume is not None and initiator is not None and len(f"{volume}:{portal or ''}") > 64:
        limit = "must be under 64 characters if iscsi.initiatorName is specified."
        text = f"Total length of <volume name>:<iscsi.targetPortal> {limit}"
        yield invalid(path.child("targetportal"), portal or "", text)
    yield from f.check_fields(
        source,
        path,
        f.must("iqn", lambda at, value: _iscsi_name(at, value, foreign)),
        f.given("lun", _LUN),
    )
    if (source.get("chapAuthDiscovery") or source.get("chapAuthSession")) and secret is None:
        yield required(path.child("secretRef"))
    if volume is not None:
        yield from f.check_fields(source, path, f.given("secretRef", f.must("name")))
    if initiator is not None:
        yield from _iscsi_name(path.child("initiatorname"), initiator, foreign)


def _fibre_channel(path: FieldPath, source: JsonObject) -> Iterator[FieldError]:
    targets, ids, at = get_list(source, "targetWWNs"), get_list(source, "wwids"), path.child("targetWWNs")
    if not targets and not ids:
        yield required(at, "must specify either targetWWNs or wwids, but not both")
        return
    if targets and ids:
        yield invalid(at, targets, "targetWWNs and wwids can not be specified simultaneously")
    if not targets:
        return
    if source.get("lun") is None:
        yield required(path.child("lun"), "lun is required if targetWWNs is specified")
        return
    yield from _LUN(path.child("lun"), source["lun"])


def _quobyte(path: FieldPath, source: JsonObject) -> list[FieldError]:
    registry, found = source.get("registry", ""), list[FieldError]()
    if not registry:
        found.append(required(path.child("registry"), _QUOBYTE_REGISTRY))
    elif len(source.get("tenant", "")) >= 65:
        text = "must be a UUID and may not exceed a length of 64 characters"
        found.append(required(path.child("tenant"), text))
    else:
        pairs = [re.fullmatch(r"(\[[^\[\]]*\]|[^:\[\]]*):[^:\[\]]*", pair) for pair in registry.split(",")]
        found += [invalid(path.child("registry"), registry, _QUOBYTE_REGISTRY) for pair in pairs if not pair]
    return found + f.check_fields(source, path, f.must("volume"))


def _flocker(path: FieldPath, source: JsonObject) -> Iterator[FieldError]:
    name, uuid = source.get("datasetName", ""), source.get("datasetUUID", "")
    if not name and not uuid:
        yield required(path, "one of datasetName and datasetUUID is required")
    if name and uuid:
        yield invalid(path, "resource", "datasetName and datasetUUID can not be specified simultaneously")
    if "/" in name:
        yield invalid(path.child("datasetName"), name, "must not contain '/'")


def _flex_options(path: FieldPath, options: JsonObject) -> list[FieldError]:
    reserved = [
        key for key in options if f".{key.lower()}".partition("/")[0].endswith((".kubernetes.io", ".k8s.io"))
    ]
    return [
        invalid(path.key(key), key, "kubernetes.io and k8s.io namespaces are reserved") for key in reserved
    ]


def _azure_disk(path: FieldPath, source: JsonObject) -> Iterator[FieldError]:
    yield from f.check_fields(
        source,
        path,
        *f.needed("diskName", "diskURI"),
        f.given("cachingMode", f.choice("None", "ReadOnly", "ReadWrite")),
        f.given("kind", f.choice("Dedicated", "Managed", "Shared")),
    )
    uri, managed = source.get("diskURI", ""), source.get("kind") == "Managed"
    if source.get("kind") is not None and not uri.startswith("/subscriptions/" if managed else "https://"):
        yield not_supported(path.child("diskURI"), uri, [_MANAGED if managed else _BLOB])


def template_metadata(path: FieldPath, metadata: JsonObject) -> Iterator[FieldError]:
    """Labels and annotations of what a template makes; it sets nothing else."""
    yield from validate_annotations(metadata.get("annotations") or {}, path.child("annotations"))
    yield from validate_labels(metadata.get("labels") or {}, path.child("labels"))
    for field, name in _TEMPLATE_METADATA.items():
        if metadata.get(field):
            yield forbidden(path.child(name), "cannot be set")


_SECRET_NAME = f.given("secretRef", f.must("name"))
_SECRET = f.given("secretRef", *f.needed("name", "namespace"))
_OWNED_SECRET = f.within(f.must("name", f.SUBDOMAIN), f.must("namespace", f.LABEL))
_STORAGEOS = (f.must("volumeName", f.LABEL), f.may("volumeNamespace", f.LABEL))
_FLEX = f.within(f.must("driver"), f.may("options", _flex_options))


def _glusterfs_namespace(path: FieldPath, value: str) -> Iterable[FieldError]:
    text = "if the endpointnamespace is set, it must be a valid namespace name"
    return f.LABEL(path, value) if value else [invalid(path, value, text)]


SOURCES: Mapping[str, f.Check] = {
    "emptyDir": _empty_dir,
    "hostPath": host_path,
    "gitRepo": f.within(f.must("repository"), f.may("directory", LOCAL_PATH)),
    "gcePersistentDisk": f.within(f.must("pdName"), _PARTITION),
    "awsElasticBlockStore": f.within(f.must("volumeID"), _PARTITION),
    "secret": f.within(f.must("secretName"), DEFAULT_MODE, KEYS),
    "nfs": f.within(*f.needed("server", "path"), f.always("path", "", _ABSOLUTE)),
    "iscsi": iscsi,
    "glusterfs": f.within(*f.needed("endpoints", "path")),
    "flocker": _flocker,
    "persistentVolumeClaim": f.within(f.must("claimName")),
    "rbd": f.within(*f.needed("monitors", "image")),
    "cinder": f.within(f.must("volumeID"), _SECRET_NAME),
    "cephfs": f.within(f.must("monitors")),
    "quobyte": _quobyte,
    "downwardAPI": f.within(DEFAULT_MODE, downward_files),
    "fc": _fibre_channel,
    "flexVolume": _FLEX,
    "configMap": f.within(f.must("name"), DEFAULT_MODE, KEYS),
    "azureFile": f.within(*f.needed("secretName", "shareName")),
    "vsphereVolume": f.within(f.must("volumePath")),
    "photonPersistentDisk": f.within(f.must("pdID")),
    "portworxVolume": f.within(f.must("volumeID")),
    "azureDisk": _azure_disk,
    "storageos": f.within(*_STORAGEOS, _SECRET_NAME),
    "projected": projected,
    "scaleIO": f.within(*f.needed("gateway", "system", "volumeName")),
    "csi": f.within(f.must("driver", csi_driver_name), f.given("nodePublishSecretRef", f.must("name"))),
    "ephemeral": f.within(
        f.must(
            "volumeClaimTemplate", f.part("metadata", template_metadata), f.part("spec", validate_claim_spec)
        )
    ),
    "image": f.within(f.must("reference"), f.must("pullPolicy", f.choice("Always", "IfNotPresent", "Never"))),
}
"""What a pod's volumes may be, in the order in which they are judged."""

PERSISTENT_SOURCES: Mapping[str, f.Check] = {
    **{name: SOURCES[name] for name in ("hostPath", "gcePersistentDisk", "awsElasticBlockStore")},
    "glusterfs": f.within(
        *f.needed("endpoints", "path"), f.given("endpointsNamespace", _glusterfs_namespace)
    ),
    **{name: SOURCES[name] for name in ("flocker", "nfs", "rbd", "quobyte", "cephfs", "iscsi")},
    "cinder": f.within(f.must("volumeID"), _SECRET),
    "fc": _fibre_channel,
    "flexVolume": _FLEX,
    "azureFile": f.within(*f.needed("secretName", "shareName"), f.given("secretNamespace")),
    **{name: SOURCES[name] for name in ("vsphereVolume", "photonPersistentDisk", "portworxVolume")},
    "azureDisk": _azure_disk,
    "scaleIO": SOURCES["scaleIO"],
    "local": f.within(f.must("path", NO_BACKSTEPS)),
    "storageos": f.within(*_STORAGEOS, _SECRET),
    "csi": f.within(
        f.must("driver", csi_driver_name),
        f.must("volumeHandle"),
        *(
            f.given(f"{name}SecretRef", _OWNED_SECRET)
            for name in ("controllerPublish", "controllerExpand", "nodePublish", "nodeExpand")
        ),
    ),
}
"""What persistent volumes may be, in the order in which they are judged."""
_SPELLINGS = {"gcePersistentDisk": "persistentDisk"}
"""What errors within a source call it."""
_SURPLUS_SPELLINGS = {"downwardAPI": "downwarAPI", "cephfs": "cephFS"}
"""What a source is called that is one too many."""


def validate_sources(
    holder: JsonObject, path: FieldPath, sources: Mapping[str, f.Check]
) -> tuple[int, list[FieldError]]:
    """The number of sources, the errors of the first, and one error for each further source."""
    count = 0
    found: list[FieldError] = []
    for name, check in sources.items():
        source = holder.get(name)
        if not isinstance(source, dict):
            continue
        if count:
            at = path.child(_SURPLUS_SPELLINGS.get(name, name))
            found.append(forbidden(at, "may not specify more than 1 volume type"))
        else:
            found += check(path.child(_SPELLINGS.get(name, name)), source)
        count += 1
    return count, found


def validate_pod_volumes(
    volumes: Sequence[JsonObject], path: FieldPath
) -> tuple[list[FieldError], list[JsonObject]]:
    """The errors of spec.volumes of a pod, and the volumes without any: others cannot be mounted."""
    found: list[FieldError] = []
    good: dict[str, JsonObject] = {}
    for position, volume in enumerate(volumes):
        here = path.index(position)
        name = volume.get("name", "")
        count, problems = validate_sources(volume, here, SOURCES)
        if not count:
            problems.append(required(here, "must specify a volume type"))
        problems += f.check_fields(volume, here, f.must("name", f.LABEL))
        if name in good:
            problems.append(duplicate(here.child("name"), name))
        if not problems:
            good[name] = volume
        found += problems
    return found, list(good.values())
