"""Renders a container as a CRI document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kindling.node.pods import environment, identity, resources, security
from kindling.node.runtime.interface import Image
from kubecore.json import JsonObject, get_bool, get_object, get_str

PROPAGATION = {"": 0, "None": 0, "HostToContainer": 1, "Bidirectional": 2}


@dataclass(frozen=True, slots=True)
class DeviceGrant:
    """What device plugins gave a container."""

    envs: Mapping[str, str] = field(default_factory=dict)
    mounts: Sequence[dict[str, Any]] = ()
    devices: Sequence[dict[str, Any]] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ContainerInputs:
    """Everything that a container's document is rendered from; all look-ups are done."""

    context: environment.EnvironmentContext
    image: Image
    attempt: int
    mounts: Sequence[dict[str, Any]]
    block_devices: Sequence[dict[str, Any]]
    grant: DeviceGrant
    termination_file: Path
    node_memory_bytes: int
    default_environment: Mapping[str, str] = field(default_factory=dict)
    cpus: str = ""
    """The processors that it runs on (empty: all)."""
    target: str = ""
    """Id of the container whose processes an ephemeral container sees."""


def container_config(pod: JsonObject, container: JsonObject, inputs: ContainerInputs) -> dict[str, Any]:
    """CRI's ContainerConfig, without a quota of processors: `CpuQuotas` sets that once the container runs.

    Raises ConfigProblem or SecurityProblem.
    """
    name = get_str(container, "name")
    values = environment.build_environment(container, inputs.context)
    command, arguments = environment.command_line(container, values)
    termination_path = get_str(container, "terminationMessagePath", default="/dev/termination-log")
    mounts = [
        *inputs.mounts,
        *inputs.grant.mounts,
        {"container_path": termination_path, "host_path": str(inputs.termination_file)},
    ]
    return {
        "metadata": {"name": name, "attempt": inputs.attempt},
        "image": {"image": inputs.image.id, "user_specified_image": get_str(container, "image")},
        "command": command,
        "args": arguments,
        "working_dir": get_str(container, "workingDir"),
        "envs": [
            {"key": key, "value": value.encode("utf-8", "surrogateescape")}
            for key, value in {**inputs.default_environment, **values, **inputs.grant.envs}.items()
        ],
        "mounts": mounts,
        "devices": [*inputs.grant.devices, *inputs.block_devices],
        "labels": identity.identity_labels(pod) | {identity.LABEL_CONTAINER: name},
        "annotations": dict(inputs.grant.annotations)
        | {
            identity.ANNOTATION_HASH: identity.container_hash(container),
            identity.ANNOTATION_RESTARTS: str(inputs.attempt),
            identity.ANNOTATION_TERMINATION_PATH: termination_path,
            identity.ANNOTATION_TERMINATION_POLICY: get_str(
                container, "terminationMessagePolicy", default="File"
            ),
            identity.ANNOTATION_TERMINATION_FILE: str(inputs.termination_file),
        },
        "log_path": f"{name}/{inputs.attempt}.log",
        "stdin": get_bool(container, "stdin"),
        "stdin_once": get_bool(container, "stdinOnce"),
        "tty": get_bool(container, "tty"),
        "linux": {
            "resources": resources.linux_resources(
                pod, container, inputs.node_memory_bytes, inputs.cpus, with_quota=False
            ),
            "security_context": security.container_security(pod, container, inputs.image, inputs.target),
        },
    }


def volume_mount(mount: JsonObject, host_path: str, *, read_only: bool) -> dict[str, Any]:
    """CRI's Mount of one volumeMount."""
    return {
        "container_path": get_str(mount, "mountPath"),
        "host_path": host_path,
        "readonly": read_only or get_bool(mount, "readOnly"),
        "propagation": PROPAGATION[get_str(mount, "mountPropagation")],
    }


def is_restartable(container: JsonObject) -> bool:
    """Whether an init container is a sidecar."""
    return get_str(container, "restartPolicy") == "Always"


def find_container(pod: JsonObject, name: str) -> JsonObject:
    """The container named `name` of any kind; empty when there is none."""
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        for item in get_object(pod, "spec").get(kind) or ():
            if isinstance(item, dict) and item.get("name") == name:
                return item
    return {}
