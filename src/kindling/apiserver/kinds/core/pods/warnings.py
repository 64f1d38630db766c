"""Warnings about pods and pod templates: deprecated fields, duplicates, settings without effect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kindling.apiserver.kinds.machinery.address_forms import address_warnings
from kindling.apiserver.kinds.machinery.checks import amount
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects.fields import FieldPath, go_quote
from kubecore.objects.names import is_dns1123_label
from kubecore.objects.quantity import Quantity

_OLD_LABELS = {
    "beta.kubernetes.io/arch": ("v1.14", "kubernetes.io/arch"),
    "beta.kubernetes.io/os": ("v1.14", "kubernetes.io/os"),
    "failure-domain.beta.kubernetes.io/region": ("v1.17", "topology.kubernetes.io/region"),
    "failure-domain.beta.kubernetes.io/zone": ("v1.17", "topology.kubernetes.io/zone"),
    "beta.kubernetes.io/instance-type": ("v1.17", "node.kubernetes.io/instance-type"),
}
_NO_SYSCTLS = 'non-functional in v1.11+; use the "sysctls" field instead'
_NO_SECCOMP = 'non-functional in v1.27+; use the "seccompProfile" field instead'
_OLD_ANNOTATIONS = {
    "seccomp.security.alpha.kubernetes.io/pod": _NO_SECCOMP,
    "security.alpha.kubernetes.io/sysctls": _NO_SYSCTLS,
    "security.alpha.kubernetes.io/unsafe-sysctls": _NO_SYSCTLS,
}
_APPARMOR = "container.apparmor.security.beta.kubernetes.io/"
_SECCOMP_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/"
_OLD_VOLUMES = {
    "gitRepo": "deprecated in v1.11, and disabled by default in v1.33+",
    "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
    "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
    "storageos": "deprecated in v1.22, non-functional in v1.25+",
    "glusterfs": "deprecated in v1.25, non-functional in v1.26+",
    "cephfs": "deprecated in v1.28, non-functional in v1.31+",
    "rbd": "deprecated in v1.28, non-functional in v1.31+",
}
_CONTAINER_FIELDS = ("initContainers", "containers", "ephemeralContainers")


def old_label(key: str) -> str | None:
    """What to say about a deprecated node label, or None."""
    known = _OLD_LABELS.get(key)
    return None if known is None else f'deprecated since {known[0]}; use "{known[1]}" instead'


def name_warning(obj: JsonObject, use: str = "in Pod names and hostnames") -> list[str]:
    """Names which are no DNS labels make strange host names."""
    problems = is_dns1123_label(get_str(obj, "metadata", "name"))
    if not problems:
        return []
    return [
        f"metadata.name: this is used {use}, which can result in surprising behavior; "
        f"a DNS label is recommended: [{' '.join(problems)}]"
    ]


def pod_warnings(pod: JsonObject, old: JsonObject | None) -> list[str]:
    """Warnings about a pod; on updates only about what is new."""
    if old is not None:
        return []
    hostname = name_warning(pod, "in the Pod's hostname")
    return [*hostname, *_warnings(pod, FieldPath(), FieldPath("spec"))]


def template_warnings(template: JsonObject, path: Sequence[str], old: JsonObject | None = None) -> list[str]:
    """Warnings about a pod template at `path`; nothing when it is as it was."""
    if old is not None and old == template:
        return []
    at = FieldPath(*path)
    return list(_warnings(template, at, at.child("spec")))


def _warnings(pod: JsonObject, path: FieldPath, spec_path: FieldPath) -> Iterator[str]:
    spec = get_object(pod, "spec")
    yield from list(_placement(spec, spec_path))
    yield from _annotations(pod, path)
    yield from _aliases(spec, spec_path)
    yield from _volumes(get_list(spec, "volumes"), spec_path)
    yield from _containers(spec, spec_path)
    if spec.get("terminationGracePeriodSeconds", 0) < 0:
        yield (
            f"{spec_path.child('terminationGracePeriodSeconds')}: must be >= 0; "
            "negative values are invalid and will be treated as 1"
        )


def _placement(spec: JsonObject, path: FieldPath) -> Iterator[str]:
    for key in sorted(get_object(spec, "nodeSelector")):
        text = old_label(key)
        if text:
            yield f"{path.child('nodeSelector').key(key)}: {text}"
    affinity = get_object(spec, "affinity", "nodeAffinity")
    at = path.child("affinity", "nodeAffinity")
    needed = "requiredDuringSchedulingIgnoredDuringExecution"
    for position, term in enumerate(get_list(affinity, needed, "nodeSelectorTerms")):
        yield from _term(term, at.child(needed, "nodeSelectorTerms").index(position))
    wished = "preferredDuringSchedulingIgnoredDuringExecution"
    for position, item in enumerate(get_list(affinity, wished)):
        yield from _term(get_object(item, "preference"), at.child(wished).index(position).child("preference"))
    for kind in ("podAffinity", "podAntiAffinity"):
        rules, at = get_object(spec, "affinity", kind), path.child("affinity", kind)
        terms = [
            (term, at.child(needed).index(number)) for number, term in enumerate(get_list(rules, needed))
        ]
        for number, item in enumerate(get_list(rules, wished)):
            here = at.child(wished).index(number).child("podAffinityTerm")
            terms.append((get_object(item, "podAffinityTerm"), here))
        for term, here in terms:
            if term.get("labelSelector") is None:
                yield f"{here.child('labelSelector')}: a null labelSelector results in matching no pod"
    for position, constraint in enumerate(get_list(spec, "topologySpreadConstraints")):
        text = old_label(constraint.get("topologyKey", ""))
        if text:
            here = path.child("topologySpreadConstraints").index(position).child("topologyKey")
            yield f"{here}: {constraint['topologyKey']} is {text}"
        if constraint.get("labelSelector") is None:
            here = path.child("topologySpreadConstraints").index(position).child("labelSelector")
            yield f"{here}: a null labelSelector results in matching no pod"


def _term(term: JsonObject, path: FieldPath) -> Iterator[str]:
    for position, expression in enumerate(get_list(term, "matchExpressions")):
        text = old_label(expression.get("key", ""))
        if text:
            at = path.child("matchExpressions").index(position).child("key")
            yield f"{at}: {expression['key']} is {text}"


def _annotations(pod: JsonObject, path: FieldPath) -> Iterator[str]:
    containers = {item.get("name") for field in _CONTAINER_FIELDS for item in get_list(pod, "spec", field)}
    for key in sorted(get_object(pod, "metadata", "annotations")):
        at = path.child("metadata", "annotations").key(key)
        if key in _OLD_ANNOTATIONS:
            yield f"{at}: {_OLD_ANNOTATIONS[key]}"
        elif key.startswith(_APPARMOR) and key.removeprefix(_APPARMOR) in containers:
            yield f'{at}: deprecated since v1.30; use the "appArmorProfile" field instead'
        elif key.startswith(_SECCOMP_CONTAINER) and key.removeprefix(_SECCOMP_CONTAINER) in containers:
            yield f'{at}: non-functional in v1.27+; use the "seccompProfile" field instead'


def _aliases(spec: JsonObject, path: FieldPath) -> Iterator[str]:
    for position, reference in enumerate(get_list(spec, "imagePullSecrets")):
        if not reference.get("name"):
            here = path.child("imagePullSecrets").index(position).child("name")
            yield f'{here}: invalid empty name ""'
    seen: dict[str, int] = {}
    for position, alias in enumerate(get_list(spec, "hostAliases")):
        address = alias.get("ip", "")
        if address in seen:
            yield (
                f"{path.child('hostAliases').index(position).child('ip')}: duplicate ip "
                f"{go_quote(address)} shared with {path.child('hostAliases').index(seen[address])}"
            )
        seen.setdefault(address, position)
        yield from address_warnings(path.child("hostAliases").index(position).child("ip"), address)
    for position, address in enumerate(get_list(spec, "dnsConfig", "nameservers")):
        yield from address_warnings(path.child("dnsConfig", "nameservers").index(position), address)


def _volumes(volumes: Sequence[JsonObject], path: FieldPath) -> Iterator[str]:
    for position, volume in enumerate(volumes):
        here = path.child("volumes").index(position)
        yield from _old_sources(volume, here)
        if not isinstance(volume.get("projected"), dict):
            continue
        for source in get_list(volume, "projected", "sources"):
            if not any(value is not None for value in source.values()):
                yield f"volume {go_quote(volume.get('name', ''))} (Projected) has no sources provided"


def _old_sources(holder: JsonObject, path: FieldPath) -> list[str]:
    return [
        f"{path.child(kind)}: {text}" for kind, text in _OLD_VOLUMES.items() if holder.get(kind) is not None
    ]


def volume_warnings(volume: JsonObject, old: JsonObject | None) -> Iterator[str]:
    """Warnings about a persistent volume."""
    spec, path = get_object(volume, "spec"), FieldPath("spec")
    for key, since, field in (
        ("volume.beta.kubernetes.io/storage-class", "v1.8", "storageClassName"),
        ("volume.beta.kubernetes.io/mount-options", "v1.31", "mountOptions"),
    ):
        if key in get_object(volume, "metadata", "annotations"):
            yield f'metadata.annotations[{key}]: deprecated since {since}; use "{field}" attribute instead'
    if spec.get("persistentVolumeReclaimPolicy") == "Recycle":
        yield (
            f"{path.child('persistentVolumeReclaimPolicy')}: The Recycle reclaim policy is deprecated. "
            "Instead, the recommended approach is to use dynamic provisioning."
        )
    at = path.child("nodeAffinity", "required", "nodeSelectorTerms")
    for position, term in enumerate(get_list(spec, "nodeAffinity", "required", "nodeSelectorTerms")):
        yield from _term(term, at.index(position))
    yield from _old_sources(spec, path)


def _containers(spec: JsonObject, path: FieldPath) -> Iterator[str]:
    for field in ("initContainers", "containers"):
        for position, container in enumerate(get_list(spec, field)):
            here = path.child(field).index(position)
            yield from _resources(container, here)
            yield from _environment(container, here)
            yield from _ports(container, here)


def _resources(container: JsonObject, path: FieldPath) -> Iterator[str]:
    for field in ("limits", "requests"):
        for name in ("memory", "ephemeral-storage"):
            value = get_object(container, "resources", field).get(name)
            if value is not None and amount(value).milli_value % 1000:
                at = path.child("resources", field).key(name)
                yield f'{at}: fractional byte value "{Quantity.parse(value)}" is invalid, must be an integer'


def _environment(container: JsonObject, path: FieldPath) -> Iterator[str]:
    seen: set[str] = set()
    for position, variable in enumerate(get_list(container, "env")):
        name, value = variable.get("name", ""), variable.get("value", "")
        # A variable that refers to its own earlier value extends it.
        if name in seen and f"$({name})" not in value:
            yield (
                f"{path.child('env').index(position)}: hides previous definition of {go_quote(name)}, "
                "which may be dropped when using apply"
            )
        seen.add(name)


def _ports(container: JsonObject, path: FieldPath) -> Iterator[str]:
    keys: list[tuple[Any, ...]] = []
    at = path.child("ports")
    for position, port in enumerate(get_list(container, "ports")):
        key = tuple(port.get(field) or "" for field in ("containerPort", "protocol", "hostIP", "hostPort"))
        yield from (
            f"{at.index(position)}: duplicate port definition with {at.index(other)}"
            for other, known in enumerate(keys)
            if known == key
        )
        keys.append(key)
        if port.get("hostIP") and not port.get("hostPort"):
            shown = " ".join(
                f"{name}:{port.get(name[0].lower() + name[1:]) or (0 if name.endswith('Port') else '')}"
                for name in ("Name", "HostPort", "ContainerPort", "Protocol", "HostIP")
            )
            yield f"{at.index(position)}: hostIP set without hostPort: {{{shown}}}"
