"""Containers of pods: images, ports, environment, mounts, hooks, resources, security."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from kindling.apiserver.kinds.core.volumes.projections import (
    LOCAL_PATH,
    NO_BACKSTEPS,
    field_reference,
    resource_reference,
)
from kindling.apiserver.kinds.machinery import fields as f
from kindling.apiserver.kinds.machinery.checks import one_of, port
from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects import names
from kubecore.objects.fields import FieldError, FieldPath, duplicate, forbidden, invalid, not_found, required

from .internal import internal_security_context
from .resource_claims import claim_names
from .resources import validate_resources
from .systems import WINDOWS_OPTIONS

ENV_FIELDS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
HOST_PORT = "must match `containerPort` when `hostNetwork` is true"
IDENTIFIER = f.between(0, 2**31 - 1)
"""A number of a user or group."""
Volumes = Mapping[str, JsonObject]
_NOT_EPHEMERAL = "cannot be set for an Ephemeral Container"
_ENV_NAME = f.named(names.is_relaxed_env_var_name)
_CONFIG_KEYS = (f.always("name", "", f.SUBDOMAIN), f.must("key", f.named(names.is_config_map_key)))


def container_rules(pod: Mapping[str, Any]) -> tuple[f.Row, ...]:
    """The rules of every container of a pod with this spec."""
    volumes = {volume["name"]: volume for volume in pod.get("volumes") or ()}
    return (
        *_IDENTITY,
        f.may("env", f.items(_ENV, partial(_value_source, _value_sources(volumes)))),
        _ENV_FROM,
        partial(_validate_mounts, volumes),
        partial(_validate_devices, volumes),
        f.must("imagePullPolicy", f.choice("Always", "IfNotPresent", "Never")),
        f.part("resources", partial(validate_resources, claim_names(pod))),
        f.may("resizePolicy", partial(_resize_policy, pod.get("restartPolicy"))),
        f.given("securityContext", *_security(own_users=pod.get("hostUsers") is False)),
    )


RESTARTS: tuple[f.Row, ...] = (
    f.given("restartPolicy", f.choice("Always", "Never", "OnFailure")),
    f.lacking(
        lambda container: container.get("restartPolicyRules") and container.get("restartPolicy") is None,
        "must specify restartPolicy when restart rules are used",
        "restartPolicy",
    ),
    f.may(
        "restartPolicyRules",
        f.items(
            f.must("action", f.choice("Restart", "RestartAllContainers")),
            f.must(
                "exitCodes",
                f.must("operator", f.choice("In", "NotIn")),
                detail="must be specified",
                given=True,
            ),
        ),
    ),
)
"""When a container runs again."""
NO_RESTARTS = f.never(_NOT_EPHEMERAL, "restartPolicy", "restartPolicyRules")
"""Ephemeral containers run once."""


_SPACES = "must not have leading or trailing whitespace"
TRIMMED_IMAGE = f.may("image", f.refused(lambda image: image != image.strip(), _SPACES))
"""What pods ask of an image besides, and templates do not."""


def ephemeral_rules(pod: JsonObject) -> tuple[f.Row, ...]:
    """The rules of ephemeral containers besides."""
    fields = ("containers", "initContainers")
    targets = {item.get("name") for field in fields for item in get_list(pod, field)}

    def target(path: FieldPath, name: str) -> list[FieldError]:
        return [] if name in targets else [not_found(path, name)]

    probes = ("livenessProbe", "readinessProbe", "startupProbe")
    return (
        f.may("targetContainerName", target),
        f.never(_NOT_EPHEMERAL, "ports", *probes, "lifecycle", "resources", "resizePolicy"),
        f.may("volumeMounts", f.items(f.never(_NOT_EPHEMERAL, "subPath", "subPathExpr"))),
    )


def _ports(path: FieldPath, ports: Sequence[JsonObject]) -> Iterator[FieldError]:
    seen: set[str] = set()
    for position, item in enumerate(ports):
        here, name = path.index(position), item.get("name", "")
        problems = f.check_fields(item, here, f.may("name", f.PORT_NAME))
        yield from problems
        if name and not problems and name in seen:
            yield duplicate(here.child("name"), name)
        seen.add(name)
        yield from f.check_fields(
            item, here, f.must("containerPort", port), f.may("hostPort", port), f.must("protocol", f.PROTOCOL)
        )


def host_port_conflicts(path: FieldPath, containers: Sequence[JsonObject]) -> Iterator[FieldError]:
    """Ports of the node that two containers want."""
    seen: set[str] = set()
    for position, container in enumerate(containers):
        for number, item in enumerate(get_list(container, "ports")):
            if not item.get("hostPort"):
                continue
            key = f"{item.get('protocol')}/{item.get('hostIP', '')}/{item['hostPort']}"
            if key in seen:
                yield duplicate(path.index(position).child("ports").index(number).child("hostPort"), key)
            seen.add(key)


def _file_key(volumes: Volumes, path: FieldPath, reference: JsonObject) -> Iterator[FieldError]:
    name, at = reference.get("volumeName"), path.child("volumeName")
    yield from f.check_fields(reference, path, f.must("volumeName", f.LABEL))
    if name and name not in volumes:
        yield not_found(at, name)
    elif name and "emptyDir" not in volumes[name]:
        yield invalid(at, name, "referenced volume must be of type emptyDir")
    yield from f.check_fields(reference, path, f.must("path", NO_BACKSTEPS), f.must("key", _ENV_NAME))


def _value_sources(volumes: Volumes) -> tuple[f.Field, ...]:
    return (
        f.given("fieldRef", partial(field_reference, allowed=ENV_FIELDS)),
        f.given("resourceFieldRef", partial(resource_reference, volume=False)),
        f.given("configMapKeyRef", *_CONFIG_KEYS),
        f.given("secretKeyRef", *_CONFIG_KEYS),
        f.given("fileKeyRef", partial(_file_key, volumes)),
    )


def _value_source(
    sources: tuple[f.Field, ...], path: FieldPath, variable: JsonObject
) -> Iterator[FieldError]:
    source, at = variable.get("valueFrom"), path.child("valueFrom")
    if source is None:
        return
    yield from f.check_fields(source, at, *sources)
    count = sum(source.get(field.name) is not None for field in sources)
    if not count:
        kinds = "`fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        yield invalid(at, "", f"must specify one of: {kinds}")
    elif variable.get("value"):
        yield invalid(at, "", "may not be specified when `value` is not empty")
    elif count > 1:
        yield invalid(at, "", "may not have more than one field specified at a time")


_NAME = f.must("name", f.SUBDOMAIN)
_FROM = (f.may("prefix", _ENV_NAME), f.given("configMapRef", _NAME), f.given("secretRef", _NAME))


def _env_from(path: FieldPath, sources: Sequence[JsonObject]) -> Iterator[FieldError]:
    for position, source in enumerate(sources):
        yield from f.check_fields(source, path.index(position), *_FROM)
        count = sum(source.get(kind) is not None for kind in ("configMapRef", "secretRef"))
        if not count:
            yield invalid(path, "", "must specify one of: `configMapRef` or `secretRef`")
        elif count > 1:
            yield invalid(path, "", "may not have more than one field specified at a time")


def _validate_mounts(volumes: Volumes, path: FieldPath, container: JsonObject) -> Iterator[FieldError]:
    devices = {device.get("name") for device in get_list(container, "volumeDevices")}
    device_paths = {device.get("devicePath") for device in get_list(container, "volumeDevices")}
    seen: set[str] = set()
    for position, mount in enumerate(get_list(container, "volumeMounts")):
        here = path.child("volumeMounts").index(position)
        name, target = mount.get("name", ""), mount.get("mountPath", "")
        yield from f.check_fields(mount, here, *f.needed("name"))
        if name not in volumes:
            yield not_found(here.child("name"), name)
        yield from f.check_fields(mount, here, *f.needed("mountPath"))
        if target in seen:
            yield invalid(here.child("mountPath"), target, "must be unique")
        seen.add(target)
        if name in devices:
            yield invalid(here.child("name"), name, "must not already exist in volumeDevices")
        if target in device_paths:
            text = "must not already exist as a path in volumeDevices"
            yield invalid(here.child("mountPath"), target, text)
        at = path.child("volumeMounts")  # the path of these errors, which lacks the mount's index
        if "image" in volumes.get(name, {}):
            text = "not allowed in image volume sources"
            refused = [field for field in ("subPath", "subPathExpr") if mount.get(field)]
            yield from (invalid(here.child(field), mount[field], text) for field in refused)
        yield from f.check_fields(mount, at, f.may("subPath", LOCAL_PATH))
        if mount.get("subPath") and mount.get("subPathExpr"):
            text = "subPathExpr and subPath are mutually exclusive"
            yield invalid(here.child("subPathExpr"), mount["subPathExpr"], text)
        yield from f.check_fields(mount, at, f.may("subPathExpr", LOCAL_PATH))
        yield from _validate_propagation(mount, container, at)


def _validate_propagation(mount: JsonObject, container: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    propagation = mount.get("mountPropagation")
    if propagation is not None:
        allowed = ("Bidirectional", "HostToContainer", "None")
        yield from one_of(path.child("mountPropagation"), propagation, allowed)
        privileged = get_object(container, "securityContext").get("privileged")
        if propagation == "Bidirectional" and not privileged:
            text = "Bidirectional mount propagation is available only to privileged containers"
            yield forbidden(path.child("mountPropagation"), text)
    recursive, at = mount.get("recursiveReadOnly"), path.child("recursiveReadOnly")
    if recursive is None or recursive == "Disabled":
        return
    if recursive not in ("Enabled", "IfPossible"):
        yield from one_of(at, recursive, ("Disabled", "Enabled", "IfPossible"))
        return
    if not mount.get("readOnly"):
        yield forbidden(at, "may only be specified when readOnly is true")
    if propagation not in (None, "None"):
        yield forbidden(at, "may only be specified when mountPropagation is None or not specified")


def _validate_devices(volumes: Volumes, path: FieldPath, container: JsonObject) -> Iterator[FieldError]:
    mounts = {mount.get("name"): mount.get("mountPath") for mount in get_list(container, "volumeMounts")}
    seen_names: set[str] = set()
    seen_paths: set[str] = set()
    for position, device in enumerate(get_list(container, "volumeDevices")):
        here = path.child("volumeDevices").index(position)
        name, target = device.get("name", ""), device.get("devicePath", "")
        yield from f.check_fields(device, here, *f.needed("name"))
        if name in seen_names:
            yield invalid(here.child("name"), name, "must be unique")
        volume = volumes.get(name)
        if volume is not None and not {"persistentVolumeClaim", "ephemeral"} & volume.keys():
            text = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            yield invalid(here.child("name"), name, text)
        if volume is None:
            yield not_found(here.child("name"), name)
        yield from f.check_fields(device, here, *f.needed("devicePath"))
        if target in seen_paths:
            yield invalid(here.child("devicePath"), target, "must be unique")
        if ".." in target.split("/"):
            yield invalid(here.child("devicePath"), target, "can not contain backsteps ('..')")
        if name in mounts:
            yield invalid(here.child("name"), name, "must not already exist in volumeMounts")
        if target in mounts.values():
            text = "must not already exist as a path in volumeMounts"
            yield invalid(here.child("devicePath"), target, text)
        if name:
            seen_names.add(name)
        seen_paths.add(target)


def _resize_policy(
    pod_policy: str | None, path: FieldPath, policies: Sequence[JsonObject]
) -> Iterator[FieldError]:
    seen: set[str] = set()
    for position, policy in enumerate(policies):
        name, restart = policy.get("resourceName", ""), policy.get("restartPolicy", "")
        if name in seen:
            yield duplicate(path.index(position), name)
        seen.add(name)
        for value, allowed in ((name, ("cpu", "memory")), (restart, ("NotRequired", "RestartContainer"))):
            yield from one_of(path, value, allowed) if value else [required(path)]
        if pod_policy == "Never" and restart != "NotRequired":
            yield invalid(path, restart, "must be 'NotRequired' when `restartPolicy` is 'Never'")


def _escalation(path: FieldPath, security: JsonObject) -> Iterator[FieldError]:
    if security.get("allowPrivilegeEscalation") is not False:
        return
    shown = internal_security_context(security)
    text = "cannot set `allowPrivilegeEscalation` to false and "
    if security.get("privileged"):
        yield invalid(path, shown, text + "`privileged` to true")
    if "CAP_SYS_ADMIN" in get_list(security, "capabilities", "add"):
        yield invalid(path, shown, text + "`capabilities.Add` CAP_SYS_ADMIN")


def _security(*, own_users: bool) -> tuple[f.Row, ...]:
    """The security context of a container; with users of its own, its pod may see all of ``/proc``."""
    unmasked = f.refused(
        lambda mount: mount == "Unmasked" and not own_users, "`hostUsers` must be false to use `Unmasked`"
    )
    mounts = f.choice("Default", "Unmasked")
    return (
        f.given("runAsUser", IDENTIFIER),
        f.given("runAsGroup", IDENTIFIER),
        f.given("procMount", mounts, unmasked),
        SECCOMP,
        _escalation,
        WINDOWS_OPTIONS,
        APP_ARMOR,
    )


def _profile(what: str, field: str, local: f.Check) -> f.Field:
    """A profile that is the node's own file (which satisfies `local`), the runtime's, or none."""
    missing = f"type is required when {field} is set"
    known = f.must("type", f.choice("Localhost", "RuntimeDefault", "Unconfined"), detail=missing)

    def check(path: FieldPath, profile: JsonObject) -> Iterable[FieldError]:
        own, at = profile.get("localhostProfile"), path.child("localhostProfile")
        if profile.get("type") != "Localhost":
            if own is not None:
                return [invalid(at, own, f"can only be set when {what} type is Localhost")]
            return f.check_fields(profile, path, known)
        return [required(at, f"must be set when {what} type is Localhost")] if own is None else local(at, own)

    return f.given(field, check)


SECCOMP = _profile("seccomp", "seccompProfile", LOCAL_PATH)
APP_ARMOR = _profile("AppArmor", "appArmorProfile", f.within())
_IDENTITY = (
    f.must("name", f.LABEL),
    f.must("image"),
    f.must("terminationMessagePolicy", f.choice("File", "FallbackToLogsOnError")),
    f.may("ports", _ports),
)
_ENV, _ENV_FROM = f.must("name", _ENV_NAME), f.may("envFrom", _env_from)
