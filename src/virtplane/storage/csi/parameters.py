"""Parameters of classes: what is for the driver, what names secrets, and the file system."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kubecore.objects.fields import go_quote
from kubecore.objects.names import is_dns1123_label, is_dns1123_subdomain
from virtplane.api.storage_kinds import SecretReference
from virtplane.storage.csi.parts import Problem

PREFIX = "csi.storage.k8s.io/"
"""Keys with it are for the sidecars and do not reach the driver."""
FS_TYPE = PREFIX + "fstype"

_TOKEN = re.compile(r"\$\{([^}]*)\}|\$(\w+)")


@dataclass(frozen=True, slots=True)
class SecretKeys:
    """The parameters that name one secret, and what messages call it."""

    label: str
    key: str
    older_key: str = ""

    @property
    def name_key(self) -> str:
        """The parameter with the secret's name."""
        return f"{PREFIX}{self.key}-name"

    @property
    def namespace_key(self) -> str:
        """The parameter with the secret's namespace."""
        return f"{PREFIX}{self.key}-namespace"


DEFAULT = SecretKeys("Default", "secret")
PROVISIONER = SecretKeys("Provisioner", "provisioner-secret", "csiProvisionerSecret")
CONTROLLER_PUBLISH = SecretKeys(
    "ControllerPublish", "controller-publish-secret", "csiControllerPublishSecret"
)
NODE_STAGE = SecretKeys("NodeStage", "node-stage-secret", "csiNodeStageSecret")
NODE_PUBLISH = SecretKeys("NodePublish", "node-publish-secret", "csiNodePublishSecret")
CONTROLLER_EXPAND = SecretKeys("ControllerExpand", "controller-expand-secret")
NODE_EXPAND = SecretKeys("NodeExpand", "node-expand-secret")
CONTROLLER_MODIFY = SecretKeys("ControllerModify", "controller-modify-secret")
SNAPSHOTTER = SecretKeys("Snapshotter", "snapshotter-secret")
SNAPSHOTTER_LIST = SecretKeys("SnapshotterList", "snapshotter-list-secret")
GROUP_SNAPSHOTTER = SecretKeys("GroupSnapshotter", "group-snapshotter-secret")
GROUP_SNAPSHOTTER_GET = SecretKeys("GroupSnapshotterGet", "group-snapshotter-get-secret")

STORAGE_CLASS_KEYS = (
    DEFAULT,
    PROVISIONER,
    CONTROLLER_PUBLISH,
    NODE_STAGE,
    NODE_PUBLISH,
    CONTROLLER_EXPAND,
    NODE_EXPAND,
    CONTROLLER_MODIFY,
)
SNAPSHOT_CLASS_KEYS = (SNAPSHOTTER, SNAPSHOTTER_LIST, GROUP_SNAPSHOTTER, GROUP_SNAPSHOTTER_GET)


def for_driver(
    parameters: Mapping[str, str], secrets: tuple[SecretKeys, ...], *others: str
) -> dict[str, str]:
    """The parameters that the driver gets. Raises Problem for a reserved key that nobody knows."""
    known = {key for each in secrets for key in (each.name_key, each.namespace_key)} | set(others)
    passed: dict[str, str] = {}
    for key, value in parameters.items():
        if not key.startswith(PREFIX):
            passed[key] = value
        elif key not in known:
            raise Problem(
                "failed to strip CSI Parameters of prefixed keys: "
                f'found unknown parameter key "{key}" with reserved namespace {PREFIX}'
            )
    return passed


def fs_type(parameters: Mapping[str, str], default: str) -> str:
    """The file system of new volumes. Raises Problem where it is named twice."""
    found = [value for key, value in parameters.items() if key.lower() == "fstype" or key == FS_TYPE]
    if len(found) > 1:
        raise Problem(f'fstype specified in parameters with both "fstype" and "{FS_TYPE}" keys')
    return (found[0] if found else "") or default


def secret_reference(
    keys: SecretKeys,
    parameters: Mapping[str, str],
    names: Mapping[str, str],
    namespaces: Mapping[str, str],
    *,
    has_default: bool = False,
) -> SecretReference | None:
    """The secret that the parameters name, with ``${...}`` replaced; None where they name none.

    `names` are the tokens that the secret's name may hold, `namespaces` those of its namespace. Raises
    Problem.
    """
    templates = _templates(keys, parameters)
    if templates is None and has_default:
        templates = _templates(DEFAULT, parameters)
    if templates is None:
        return None
    name, namespace = templates
    return SecretReference(
        name=_resolved(name, names, is_dns1123_subdomain, "secret name"),
        namespace=_resolved(namespace, namespaces, is_dns1123_label, "namespace name"),
    )


def _templates(keys: SecretKeys, parameters: Mapping[str, str]) -> tuple[str, str] | None:
    older = keys.older_key
    names = [parameters[key] for key in (keys.name_key, older and older + "Name") if key in parameters]
    spaces = [
        parameters[key] for key in (keys.namespace_key, older and older + "Namespace") if key in parameters
    ]
    problem = ""
    if len(names) > 1 or len(spaces) > 1:
        problem = f'{keys.label} secrets specified in parameters with both "csi" and "{PREFIX}" keys'
    elif len(names) != len(spaces):
        problem = f"either name and namespace for {keys.label} secrets specified, Both must be specified"
    elif names and not (names[0] and spaces[0]):
        problem = (
            f"{keys.label} secrets specified in parameters but value of either namespace or name is empty"
        )
    if problem:
        raise Problem(f"failed to get name and namespace template from params: {problem}")
    return (names[0], spaces[0]) if names else None


def _resolved(template: str, tokens: Mapping[str, str], check: Callable[[str], list[str]], what: str) -> str:
    missing: set[str] = set()

    def replaced(found: re.Match[str]) -> str:
        token = found[1] if found[1] is not None else found[2]
        if token not in tokens:
            missing.add(token)
        return tokens.get(token, "")

    value = _TOKEN.sub(replaced, template)
    if missing:
        tokens_text = " ".join(go_quote(token) for token in sorted(missing))
        raise Problem(f"error resolving value {go_quote(template)}: invalid tokens: [{tokens_text}]")
    if check(value):
        if value != template:
            raise Problem(f"{go_quote(template)} resolved to {go_quote(value)} which is not a valid {what}")
        raise Problem(f"{go_quote(template)} is not a valid {what}")
    return value
