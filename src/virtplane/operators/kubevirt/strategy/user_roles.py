"""Roles for users: admin, edit, view, migrate and the default role."""

from __future__ import annotations

from kubecore.json import JsonObject
from virtplane.api.resources import SUBRESOURCES_GROUP
from virtplane.operators.kit.roles import (
    AGGREGATE_TO,
    ALL,
    READ,
    WRITE,
    group_subject,
    rule,
)
from virtplane.operators.kubevirt.product import ACCESS

_SUB = SUBRESOURCES_GROUP
_BOOTSTRAP = {"kubernetes.io/bootstrapping": "rbac-defaults"}
_UPDATE_ANNOTATION = {"rbac.authorization.kubernetes.io/autoupdate": "true"}
_AUTHENTICATED = group_subject("system:authenticated")

_GUEST_DATA = """
virtualmachineinstances/guestosinfo virtualmachineinstances/filesystemlist virtualmachineinstances/userlist
virtualmachineinstances/sev/fetchcertchain virtualmachineinstances/sev/querylaunchmeasurement
virtualmachines/objectgraph virtualmachineinstances/objectgraph
"""
_CONSOLES = """
virtualmachineinstances/console virtualmachineinstances/vnc virtualmachineinstances/portforward
virtualmachineinstances/usbredir
"""
_INSTANCE_ACTIONS = """
virtualmachineinstances/pause virtualmachineinstances/unpause virtualmachineinstances/addvolume
virtualmachineinstances/removevolume virtualmachineinstances/freeze virtualmachineinstances/unfreeze
virtualmachineinstances/softreboot virtualmachineinstances/reset virtualmachineinstances/sev/setupsession
virtualmachineinstances/sev/injectlaunchsecret virtualmachineinstances/evacuate/cancel
"""
_MACHINE_ACTIONS = """
virtualmachines/start virtualmachines/stop virtualmachines/restart virtualmachines/addvolume
virtualmachines/removevolume virtualmachines/memorydump virtualmachines/removememorydump
virtualmachines/evacuate/cancel
"""
_MACHINES = """
virtualmachines virtualmachineinstances virtualmachineinstancepresets virtualmachineinstancereplicasets
"""
_INSTANCETYPES = """
virtualmachineinstancetypes virtualmachineclusterinstancetypes virtualmachinepreferences
virtualmachineclusterpreferences
"""
_OTHER_KINDS: tuple[tuple[str, str], ...] = (
    ("snapshot.kubevirt.io", "virtualmachinesnapshots virtualmachinesnapshotcontents virtualmachinerestores"),
    ("backup.kubevirt.io", "virtualmachinebackups virtualmachinebackuptrackers"),
    ("export.kubevirt.io", "virtualmachineexports"),
    ("clone.kubevirt.io", "virtualmachineclones"),
    ("instancetype.kubevirt.io", _INSTANCETYPES),
    ("pool.kubevirt.io", "virtualmachinepools"),
)
_READ_MIGRATIONS = rule("kubevirt.io", "virtualmachineinstancemigrations", READ)
_READ_POLICIES = rule("migrations.kubevirt.io", "migrationpolicies", READ)
_READ_INSTALLATION = rule("kubevirt.io", "kubevirts", ("get", "list"))
_EXPAND = rule(_SUB, "expand-vm-spec", ("update",))


def user_roles(*, aggregate: bool) -> list[JsonObject]:
    """The roles and their bindings. With `aggregate` they are aggregated to the cluster's admin, edit and
    view.
    """
    return [
        default_role(),
        ACCESS.bind_cluster_role("kubevirt.io:default", [_AUTHENTICATED], labels=_BOOTSTRAP)
        | {"metadata": _bootstrap_metadata()},
        ACCESS.cluster_role("kubevirt.io:admin", _admin_rules(), _aggregation("admin", aggregate)),
        ACCESS.cluster_role("kubevirt.io:edit", _edit_rules(), _aggregation("edit", aggregate)),
        ACCESS.cluster_role("kubevirt.io:view", _view_rules(), _aggregation("view", aggregate)),
        ACCESS.cluster_role(
            "kubevirt.io:migrate",
            [
                rule(_SUB, "virtualmachines/migrate", ("update",)),
                rule("kubevirt.io", "virtualmachineinstancemigrations", ALL),
            ],
        ),
        ACCESS.cluster_role(
            "instancetype.kubevirt.io:view",
            [
                rule(
                    "instancetype.kubevirt.io",
                    "virtualmachineclusterinstancetypes virtualmachineclusterpreferences",
                    READ,
                )
            ],
        ),
        ACCESS.bind_cluster_role("instancetype.kubevirt.io:view", [_AUTHENTICATED]),
    ]


def default_role() -> JsonObject:
    """The rights of every authenticated user."""
    document = ACCESS.cluster_role(
        "kubevirt.io:default",
        [_READ_INSTALLATION, rule(_SUB, "version guestfs", ("get", "list"))],
    )
    document["metadata"] = _bootstrap_metadata()
    return document


def _bootstrap_metadata() -> JsonObject:
    return {
        "name": "kubevirt.io:default",
        "labels": {"kubevirt.io": "", **_BOOTSTRAP},
        "annotations": dict(_UPDATE_ANNOTATION),
    }


def _aggregation(role: str, aggregate: bool) -> dict[str, str]:
    return {AGGREGATE_TO + role: "true" if aggregate else "false"}


def _admin_rules() -> list[JsonObject]:
    return [
        rule(_SUB, _CONSOLES + "virtualmachineinstances/vnc/screenshot" + _GUEST_DATA, ("get",)),
        rule(_SUB, _INSTANCE_ACTIONS, ("update",)),
        rule(_SUB, "virtualmachines/expand-spec virtualmachines/portforward", ("get",)),
        rule(_SUB, _MACHINE_ACTIONS, ("update",)),
        _EXPAND,
        rule("kubevirt.io", _MACHINES, ALL),
        _READ_MIGRATIONS,
        *(rule(group, kinds, ALL) for group, kinds in _OTHER_KINDS),
        rule("plugin.kubevirt.io", "plugins", ALL),
        _READ_POLICIES,
    ]


def _edit_rules() -> list[JsonObject]:
    return [
        rule(_SUB, _CONSOLES + _GUEST_DATA, ("get",)),
        rule(_SUB, _INSTANCE_ACTIONS, ("update",)),
        rule(_SUB, "virtualmachines/expand-spec virtualmachines/portforward", ("get",)),
        rule(_SUB, _MACHINE_ACTIONS, ("update",)),
        _EXPAND,
        rule("kubevirt.io", _MACHINES, WRITE),
        _READ_MIGRATIONS,
        _READ_INSTALLATION,
        *(rule(group, kinds, WRITE) for group, kinds in _OTHER_KINDS),
        _READ_POLICIES,
    ]


def _view_rules() -> list[JsonObject]:
    return [
        _READ_INSTALLATION,
        rule(_SUB, "virtualmachines/expand-spec" + _GUEST_DATA, ("get",)),
        _EXPAND,
        rule("kubevirt.io", _MACHINES + "virtualmachineinstancemigrations", READ),
        *(rule(group, kinds, READ) for group, kinds in _OTHER_KINDS),
        _READ_POLICIES,
        rule("plugin.kubevirt.io", "plugins", READ),
    ]
