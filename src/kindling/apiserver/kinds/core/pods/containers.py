"""Containers of pods: images, ports, environment, mounts, probes, hooks, resources, security."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kindling.apiserver.kinds.core.volumes.projections import (
    field_reference,
    local_path,
    no_backsteps,
    resource_reference,
)
from kindling.apiserver.kinds.machinery.checks import one_of, port
from kindling.apiserver.kinds.machinery.fields import (
    check_fields,
    choice,
    given,
    items,
    may,
    must,
    named,
    needed,
    within,
)
from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects import names
from kubecore.objects.fields import FieldError, FieldPath, duplicate, forbidden, invalid, not_found, required

from .resources import validate_resources

PULL_POLICIES = ("Always", "IfNotPresent", "Never")
PROTOCOLS = ("SCTP", "TCP", "UDP")
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


def validate_container(
    container: JsonObject, path: FieldPath, pod: Mapping[str, Any], kind: str
) -> Iterator[FieldError]:
    """One container; `kind` is ``container``, ``init`` or ``ephemeral``, `pod` the pod's spec."""
    yield from check_fields(
        container,
        path,
        must("name", named(names.is_dns1123_label)),
        *needed("image"),
        must("terminationMessagePolicy", choice("File", "FallbackToLogsOnError")),
    )
    yield from _validate_ports(get_list(container, "ports"), path.child("ports"))
    yield from _validate_env(get_list(container, "env"), path.child("env"), pod)
    yield from _validate_env_from(get_list(container, "envFrom"), path.child("envFrom"))
    yield from _validate_mounts(container, path, pod)
    yield from check_fields(container, path, must("imagePullPolicy", choice(*PULL_POLICIES)))
    yield from validate_resources(get_object(container, "resources"), path.child("resources"))
    yield from _validate_resize_policy(container, path, str(pod.get("restartPolicy", "")))
    yield from _validate_security(container.get("securityContext"), path.child("securityContext"))
    yield from _validate_restart_policy(container, path, kind)


def trimmed_image(container: JsonObject, path: FieldPath) -> list[FieldError]:
    """What pods ask of an image besides, and templates do not: no spaces around it."""
    image = container.get("image", "")
    text = "must not have leading or trailing whitespace"
    return [] if image == image.strip() else [invalid(path.child("image"), image, text)]


_RESTART_RULES = items(
    within(
        must("action", choice("Restart", "RestartAllContainers")),
        must(
            "exitCodes",
            within(must("operator", choice("In", "NotIn"))),
            detail="must be specified",
            given=True,
        ),
    )
)


def _validate_restart_policy(container: JsonObject, path: FieldPath, kind: str) -> Iterator[FieldError]:
    if kind == "ephemeral":
        text = "cannot be set for an Ephemeral Container"
        given_fields = [name for name in ("restartPolicy", "restartPolicyRules") if container.get(name)]
        yield from (forbidden(path.child(name), text) for name in given_fields)
        return
    yield from check_fields(container, path, given("restartPolicy", choice("Always", "Never", "OnFailure")))
    if container.get("restartPolicyRules") and container.get("restartPolicy") is None:
        yield required(path.child("restartPolicy"), "must specify restartPolicy when restart rules are used")
    yield from check_fields(container, path, may("restartPolicyRules", _RESTART_RULES))


def _validate_ports(ports: Sequence[JsonObject], path: FieldPath) -> Iterator[FieldError]:
    seen: set[str] = set()
    for position, item in enumerate(ports):
        here = path.index(position)
        name = item.get("name", "")
        if name:
            problems = names.is_port_name(name)
            yield from (invalid(here.child("name"), name, problem) for problem in problems)
            if not problems and name in seen:
                yield duplicate(here.child("name"), name)
            seen.add(name)
        yield from check_fields(item, here, must("containerPort", port), may("hostPort", port))
        yield from check_fields(item, here, must("protocol", choice(*PROTOCOLS)))


def host_port_conflicts(containers: Sequence[tuple[JsonObject, FieldPath]]) -> Iterator[FieldError]:
    """Ports of the node that two containers want."""
    seen: set[str] = set()
    for container, path in containers:
        for position, item in enumerate(get_list(container, "ports")):
            if not item.get("hostPort"):
                continue
            key = f"{item.get('protocol')}/{item.get('hostIP', '')}/{item['hostPort']}"
            if key in seen:
                yield duplicate(path.child("ports").index(position).child("hostPort"), key)
            seen.add(key)


def _validate_env(
    variables: Sequence[JsonObject], path: FieldPath, pod: Mapping[str, Any]
) -> Iterator[FieldError]:
    for position, variable in enumerate(variables):
        here = path.index(position)
        yield from check_fields(variable, here, must("name", named(names.is_relaxed_env_var_name)))
        source = variable.get("valueFrom")
        if isinstance(source, dict):
            yield from _validate_env_source(source, here.child("valueFrom"), variable.get("value", ""), pod)


_KEY_REFERENCE = (
    given("name", named(names.is_dns1123_subdomain)),
    must("key", named(names.is_config_map_key)),
)


def _validate_file_reference(
    part: JsonObject, path: FieldPath, pod: Mapping[str, Any]
) -> Iterator[FieldError]:
    name, volumes = part.get("volumeName"), {volume["name"]: volume for volume in pod.get("volumes") or ()}
    yield from check_fields(part, path, must("volumeName", named(names.is_dns1123_label)))
    if name and name not in volumes:
        yield not_found(path.child("volumeName"), name)
    elif name and "emptyDir" not in volumes[name]:
        yield invalid(path.child("volumeName"), name, "referenced volume must be of type emptyDir")
    key = must("key", named(names.is_relaxed_env_var_name))
    yield from check_fields(part, path, must("path", no_backsteps), key)


def _validate_env_source(
    source: JsonObject, path: FieldPath, value: str, pod: Mapping[str, Any]
) -> Iterator[FieldError]:
    count = 0
    for kind in ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"):
        part = source.get(kind)
        if not isinstance(part, dict):
            continue
        count += 1
        at = path.child(kind)
        match kind:
            case "fieldRef":
                yield from field_reference(part, at, ENV_FIELDS)
            case "resourceFieldRef":
                yield from resource_reference(part, at, volume=False)
            case "configMapKeyRef" | "secretKeyRef":
                yield from check_fields({"name": "", **part}, at, *_KEY_REFERENCE)
            case "fileKeyRef":
                yield from _validate_file_reference(part, at, pod)
    if not count:
        kinds = "`fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        yield invalid(path, "", f"must specify one of: {kinds}")
    elif value:
        yield invalid(path, "", "may not be specified when `value` is not empty")
    elif count > 1:
        yield invalid(path, "", "may not have more than one field specified at a time")


def _validate_env_from(sources: Sequence[JsonObject], path: FieldPath) -> Iterator[FieldError]:
    for position, source in enumerate(sources):
        here = path.index(position)
        yield from check_fields(source, here, may("prefix", named(names.is_relaxed_env_var_name)))
        kinds = [kind for kind in ("configMapRef", "secretRef") if isinstance(source.get(kind), dict)]
        for kind in kinds:
            rule = must("name", named(names.is_dns1123_subdomain))
            yield from check_fields(source[kind], here.child(kind), rule)
        if not kinds:
            yield invalid(path, "", "must specify one of: `configMapRef` or `secretRef`")
        elif len(kinds) > 1:
            yield invalid(path, "", "may not have more than one field specified at a time")


def _validate_mounts(container: JsonObject, path: FieldPath, pod: Mapping[str, Any]) -> Iterator[FieldError]:
    volumes = {volume.get("name"): volume for volume in pod.get("volumes") or ()}
    devices = {device.get("name") for device in get_list(container, "volumeDevices")}
    device_paths = {device.get("devicePath") for device in get_list(container, "volumeDevices")}
    seen: set[str] = set()
    for position, mount in enumerate(get_list(container, "volumeMounts")):
        here = path.child("volumeMounts").index(position)
        name, target = mount.get("name", ""), mount.get("mountPath", "")
        yield from check_fields(mount, here, *needed("name"))
        if name not in volumes:
            yield not_found(here.child("name"), name)
        yield from check_fields(mount, here, *needed("mountPath"))
        if target in seen:
            yield invalid(here.child("mountPath"), target, "must be unique")
        seen.add(target)
        if name in devices:
            yield invalid(here.child("name"), name, "must not already exist in volumeDevices")
        if target in device_paths:
            text = "must not already exist as a path in volumeDevices"
            yield invalid(here.child("mountPath"), target, text)
        at = path.child("volumeMounts")  # where these errors are said to be, without the mount's position
        if "image" in volumes.get(name, {}):
            text = "not allowed in image volume sources"
            refused = [field for field in ("subPath", "subPathExpr") if mount.get(field)]
            yield from (invalid(here.child(field), mount[field], text) for field in refused)
        yield from check_fields(mount, at, may("subPath", local_path))
        if mount.get("subPath") and mount.get("subPathExpr"):
            text = "subPathExpr and subPath are mutually exclusive"
            yield invalid(here.child("subPathExpr"), mount["subPathExpr"], text)
        yield from check_fields(mount, at, may("subPathExpr", local_path))
        yield from _validate_propagation(mount, container, at)
    yield from _validate_devices(container, path, volumes)


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


def _validate_devices(
    container: JsonObject, path: FieldPath, volumes: Mapping[str, JsonObject]
) -> Iterator[FieldError]:
    mounts = {mount.get("name"): mount.get("mountPath") for mount in get_list(container, "volumeMounts")}
    seen_names: set[str] = set()
    seen_paths: set[str] = set()
    for position, device in enumerate(get_list(container, "volumeDevices")):
        here = path.child("volumeDevices").index(position)
        name, target = device.get("name", ""), device.get("devicePath", "")
        yield from check_fields(device, here, *needed("name"))
        if name in seen_names:
            yield invalid(here.child("name"), name, "must be unique")
        volume = volumes.get(name)
        if volume is not None and not {"persistentVolumeClaim", "ephemeral"} & volume.keys():
            text = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            yield invalid(here.child("name"), name, text)
        if volume is None:
            yield not_found(here.child("name"), name)
        yield from check_fields(device, here, *needed("devicePath"))
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


def _validate_resize_policy(container: JsonObject, path: FieldPath, pod_policy: str) -> Iterator[FieldError]:
    at = path.child("resizePolicy")
    seen: set[str] = set()
    for position, policy in enumerate(get_list(container, "resizePolicy")):
        name, restart = policy.get("resourceName", ""), policy.get("restartPolicy", "")
        if name in seen:
            yield duplicate(at.index(position), name)
        seen.add(name)
        for value, allowed in ((name, ("cpu", "memory")), (restart, ("NotRequired", "RestartContainer"))):
            yield from one_of(at, value, allowed) if value else [required(at)]
        if pod_policy == "Never" and restart != "NotRequired":
            yield invalid(at, restart, "must be 'NotRequired' when `restartPolicy` is 'Never'")


def _validate_security(security: Any, path: FieldPath) -> Iterator[FieldError]:
    if not isinstance(security, dict):
        return
    for field in ("runAsUser", "runAsGroup"):
        value = security.get(field)
        if value is not None and not 0 <= value <= 2**31 - 1:
            yield invalid(path.child(field), value, "must be between 0 and 2147483647, inclusive")
    yield from check_fields(security, path, given("procMount", choice("Default", "Unmasked")))
    yield from validate_seccomp(security.get("seccompProfile"), path.child("seccompProfile"))
    yield from validate_apparmor(security.get("appArmorProfile"), path.child("appArmorProfile"))
    if security.get("allowPrivilegeEscalation") is False:
        if security.get("privileged"):
            yield invalid(
                path, security, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
            )
        if "CAP_SYS_ADMIN" in get_list(security, "capabilities", "add"):
            text = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
            yield invalid(path, security, text)


def validate_seccomp(profile: Any, path: FieldPath) -> list[FieldError]:
    """A seccomp profile."""
    return _validate_profile(profile, path, "seccomp")


def validate_apparmor(profile: Any, path: FieldPath) -> list[FieldError]:
    """An AppArmor profile."""
    return _validate_profile(profile, path, "apparmor")


def _validate_profile(profile: Any, path: FieldPath, what: str) -> list[FieldError]:
    if not isinstance(profile, dict):
        return []
    kind, local = profile.get("type", ""), profile.get("localhostProfile")
    if kind == "Localhost":
        if local is None:
            return [
                required(
                    path.child("localhostProfile"),
                    f"must be set when {'seccomp' if what == 'seccomp' else 'AppArmor'} type is Localhost",
                )
            ]
        return local_path(path.child("localhostProfile"), local) if what == "seccomp" else []
    if local is not None:
        label = "seccomp" if what == "seccomp" else "AppArmor"
        return [
            invalid(path.child("localhostProfile"), local, f"can only be set when {label} type is Localhost")
        ]
    if not kind:
        return [
            required(
                path.child("type"),
                "type is required when seccompProfile is set"
                if what == "seccomp"
                else "type is required when appArmorProfile is set",
            )
        ]
    return one_of(path.child("type"), kind, ("Localhost", "RuntimeDefault", "Unconfined"))
