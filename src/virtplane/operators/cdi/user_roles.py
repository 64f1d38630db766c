"""Roles that users are given: those that become part of Kubernetes' own, and two that stand alone."""

from __future__ import annotations

from collections.abc import Sequence

from kubecore.json import JsonObject
from virtplane.api import cdi_labels
from virtplane.operators.cdi.product import Parameters, made
from virtplane.operators.kit.roles import AGGREGATE_TO, READ, group_subject, rule

_GROUP = "cdi.kubevirt.io"
_FORKLIFT = "forklift.cdi.kubevirt.io"
_POPULATORS = "ovirtvolumepopulators openstackvolumepopulators"
_EVERYTHING = ("*",)
_OF_USERS = (
    "datavolumes dataimportcrons datasources volumeimportsources volumeuploadsources volumeclonesources"
)
_READ_BY_USERS = (
    "cdiconfigs dataimportcrons datasources datavolumes objecttransfers storageprofiles"
    " volumeimportsources volumeuploadsources volumeclonesources"
)
_RBAC = "rbac.authorization.k8s.io"
_CONFIG_READER = f"{cdi_labels.COMPONENT}:config-reader"


def edit_rules() -> list[JsonObject]:
    """What admins and editors of a namespace may do."""
    return [
        rule(_GROUP, _OF_USERS, _EVERYTHING),
        rule(_GROUP, "datavolumes/source", ("create",)),
        rule("upload.cdi.kubevirt.io", "uploadtokenrequests", _EVERYTHING),
        rule(_FORKLIFT, _POPULATORS, _EVERYTHING),
    ]


def view_rules() -> list[JsonObject]:
    """What viewers of a namespace may do."""
    return [rule(_GROUP, _READ_BY_USERS, READ), rule(_FORKLIFT, _POPULATORS, READ)]


def user_roles(parameters: Parameters) -> list[JsonObject]:
    """The ClusterRoles, and the binding by which everybody reads the config and the storage profiles."""
    binding = made(
        parameters,
        f"{_RBAC}/v1",
        "ClusterRoleBinding",
        _CONFIG_READER,
        roleRef={"apiGroup": _RBAC, "kind": "ClusterRole", "name": _CONFIG_READER},
        subjects=[group_subject("system:authenticated"), group_subject("system:serviceaccount")],
    )
    return [
        _role(parameters, "admin", edit_rules(), aggregated=True),
        _role(parameters, "edit", edit_rules(), aggregated=True),
        _role(parameters, "view", view_rules(), aggregated=True),
        _role(parameters, "clone-sourcer", [rule(_GROUP, "datavolumes/source", ("create",))]),
        _role(parameters, "config-reader", [rule(_GROUP, "cdiconfigs storageprofiles", READ)]),
        binding,
    ]


def _role(
    parameters: Parameters, name: str, rules: Sequence[JsonObject], *, aggregated: bool = False
) -> JsonObject:
    document = made(
        parameters, f"{_RBAC}/v1", "ClusterRole", f"{cdi_labels.COMPONENT}:{name}", rules=list(rules)
    )
    if aggregated:
        document["metadata"]["labels"][f"{AGGREGATE_TO}{name}"] = "true"
    return document
