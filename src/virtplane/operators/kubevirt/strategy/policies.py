"""ValidatingAdmissionPolicies: who may change what on nodes and launcher pods."""

from __future__ import annotations

from kubecore.json import JsonObject
from virtplane.api import labels
from virtplane.operators.kubevirt.strategy.components import virt_controller, virt_handler

_GROUP = "admissionregistration.k8s.io/v1"
_NODE_NAME = "authentication.kubernetes.io/node-name"

_OWN_METADATA = (
    'filter(k, k != "labels" && k != "annotations" && k != "managedFields" && k != "resourceVersion")'
)
_FOREIGN_LABELS = 'labels.filter(k, !k.contains("kubevirt.io") && k != "cpumanager")'
_FOREIGN_ANNOTATIONS = 'annotations.filter(k, !k.contains("kubevirt.io"))'

_VARIABLES: tuple[tuple[str, str], ...] = (
    ("oldNonKubevirtLabels", f"oldObject.metadata.{_FOREIGN_LABELS}"),
    ("oldLabels", "oldObject.metadata.labels"),
    ("newNonKubevirtLabels", f"object.metadata.{_FOREIGN_LABELS}"),
    ("newLabels", "object.metadata.labels"),
    ("oldNonKubevirtAnnotations", f"oldObject.metadata.{_FOREIGN_ANNOTATIONS}"),
    ("newNonKubevirtAnnotations", f"object.metadata.{_FOREIGN_ANNOTATIONS}"),
    ("oldAnnotations", "oldObject.metadata.annotations"),
    ("newAnnotations", "object.metadata.annotations"),
    ("requestMatchNode", f"object.metadata.name == request.userInfo.extra['{_NODE_NAME}'][0]"),
    ("hasNode", f"('{_NODE_NAME}' in request.userInfo.extra)"),
)


def _same_size(what: str) -> str:
    return f"size(variables.newNonKubevirt{what}) == size(variables.oldNonKubevirt{what})"


def _same_values(what: str) -> str:
    return (
        f"variables.newNonKubevirt{what}.all(k, k in variables.oldNonKubevirt{what}"
        f" && variables.new{what}[k] == variables.old{what}[k])"
    )


_VALIDATIONS: tuple[tuple[str, str], ...] = (
    ("variables.hasNode && variables.requestMatchNode", "this user cannot modify this node"),
    ("object.spec == oldObject.spec", "this user cannot modify spec of node"),
    (
        f"oldObject.metadata.{_OWN_METADATA}.all(k, k in object.metadata) && object.metadata.{_OWN_METADATA}"
        ".all(k, k in oldObject.metadata && oldObject.metadata[k] == object.metadata[k])",
        "this user can only change allowed metadata fields",
    ),
    (_same_size("Labels"), "this user cannot add/delete non kubevirt-owned labels"),
    (_same_values("Labels"), "this user cannot update non kubevirt-owned labels"),
    (_same_size("Annotations"), "this user cannot add/delete non kubevirt-owned annotations"),
    (_same_values("Annotations"), "this user cannot update non kubevirt-owned annotations"),
)


def node_restriction(namespace: str) -> list[JsonObject]:
    """The policy and its binding: virt-handler changes its own node only, and only KubeVirt's keys."""
    return _node_policy(namespace, "kubevirt-node-restriction", "nodes")


def node_status_restriction(namespace: str) -> list[JsonObject]:
    """The same of a node's status. KubeVirt's virt-handler may not write it; ours has a condition in it."""
    return _node_policy(namespace, "kubevirt-node-status-restriction", "nodes/status")


def _node_policy(namespace: str, name: str, resource: str) -> list[JsonObject]:
    user = f"system:serviceaccount:{namespace}:{virt_handler.COMPONENT.account}"
    policy = {
        "apiVersion": _GROUP,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": f"{name}-policy"},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [_rule(resource, "UPDATE")]},
            "matchConditions": [
                {"name": "virt-handler-user-only", "expression": f'request.userInfo.username == "{user}"'}
            ],
            "variables": [{"name": name, "expression": expression} for name, expression in _VARIABLES],
            "validations": [
                {"expression": expression, "message": message, "reason": "Forbidden"}
                for expression, message in _VALIDATIONS
            ],
        },
    }
    binding = {
        "apiVersion": _GROUP,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": f"{name}-binding", "labels": {"kubevirt.io": name}},
        "spec": {
            "policyName": f"{name}-policy",
            "validationActions": ["Deny"],
            "matchResources": {"resourceRules": [_rule(resource, "*")]},
        },
    }
    return [policy, binding]


_LAUNCHERS_POLICY = "kubevirt-launcher-restriction-policy"
_LAUNCHERS_BINDING = "kubevirt-launcher-restriction-binding"
_KINDS = "['virt-launcher', 'hotplug-disk']"


def _label(of: str) -> str:
    """The label of a pod's kind of component, if only virt-controller may set that value."""
    metadata = f"{of}.metadata"
    has = f"has({metadata}.labels) && '{labels.APP}' in {metadata}.labels"
    return f"{has} && {metadata}.labels['{labels.APP}'] in {_KINDS} ? {metadata}.labels['{labels.APP}'] : ''"


def _owners(of: str) -> str:
    """The UIDs of the instances in a pod's controller references."""
    mine = (
        "o.kind == 'VirtualMachineInstance' && o.apiVersion.startsWith('kubevirt.io/')"
        " && has(o.controller) && o.controller"
    )
    owners = f"{of}.metadata.ownerReferences"
    return f"has({owners}) ? {owners}.filter(o, {mine}).map(o, o.uid) : []"


_ADDING = "ephemeralcontainers"
_HARMLESS = (
    "has(c.securityContext) && has(c.securityContext.capabilities)"
    " && has(c.securityContext.capabilities.drop) && 'ALL' in c.securityContext.capabilities.drop"
    " && (!has(c.securityContext.capabilities.add) || size(c.securityContext.capabilities.add) == 0)"
    " && (!has(c.securityContext.privileged) || !c.securityContext.privileged)"
)
"""Of an added container `c`: it can make no device nodes, which virt-handler takes for its pod's."""

_LAUNCHER_VARIABLES: tuple[tuple[str, str], ...] = (
    ("newLabel", _label("object")),
    ("oldLabel", f"oldObject == null ? '' : ({_label('oldObject')})"),
    ("newOwners", _owners("object")),
    ("oldOwners", f"oldObject == null ? [] : ({_owners('oldObject')})"),
)
_LAUNCHER_VALIDATIONS: tuple[tuple[str, str], ...] = (
    (
        "variables.newOwners.all(uid, uid in variables.oldOwners)",
        "only virt-controller makes pods that a VirtualMachineInstance controls",
    ),
    (
        "variables.newLabel == '' || variables.newLabel == variables.oldLabel",
        f"only virt-controller makes pods with the label {labels.APP} in {_KINDS}",
    ),
    (
        f"request.subResource != '{_ADDING}' || variables.newLabel == ''"
        f" || object.spec.ephemeralContainers.all(c, {_HARMLESS})",
        "containers that are added to the pods of a guest must drop all capabilities,"
        " as by kubectl debug --profile=restricted",
    ),
)


def launcher_restriction(namespace: str) -> list[JsonObject]:
    """The policy and its binding: only virt-controller may create pods that count as launchers, and nobody
    may add containers with capabilities to them. A dry run makes none. See docs/decisions/014.
    """
    user = f"system:serviceaccount:{namespace}:{virt_controller.COMPONENT.account}"
    policy = {
        "apiVersion": _GROUP,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": _LAUNCHERS_POLICY},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [_rule("pods", "CREATE", "UPDATE"), _rule(f"pods/{_ADDING}", "UPDATE")]
            },
            "matchConditions": [
                {
                    "name": "not-virt-controller",
                    "expression": f'request.userInfo.username != "{user}"',
                },
                {"name": "not-a-dry-run", "expression": "!has(request.dryRun) || !request.dryRun"},
            ],
            "variables": [
                {"name": name, "expression": expression} for name, expression in _LAUNCHER_VARIABLES
            ],
            "validations": [
                {"expression": expression, "message": message, "reason": "Forbidden"}
                for expression, message in _LAUNCHER_VALIDATIONS
            ],
        },
    }
    binding = {
        "apiVersion": _GROUP,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": _LAUNCHERS_BINDING},
        "spec": {"policyName": _LAUNCHERS_POLICY, "validationActions": ["Deny"]},
    }
    return [policy, binding]


def _rule(resource: str, *operations: str) -> JsonObject:
    return {
        "apiGroups": [""],
        "apiVersions": ["*"],
        "operations": list(operations),
        "resources": [resource],
        "scope": "*",
    }
