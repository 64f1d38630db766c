"""What tokens for displays need: the issuer's account and its limits, and a role for users."""

from __future__ import annotations

from kubecore.json import JsonObject
from virtplane.api.vnc_access import GENERATOR_ROLE, ISSUER, SUFFIX, TOKEN_GROUP
from virtplane.operators.kit.roles import rule
from virtplane.operators.kubevirt.product import ACCESS
from virtplane.operators.kubevirt.strategy.components import vm_console_proxy

_ADMISSION = "admissionregistration.k8s.io/v1"
_POLICY = "kubevirt-vnc-access-policy"
_BINDING = "kubevirt-vnc-access-binding"
_DISPLAY = "virtualmachineinstances/vnc"
_VALIDATIONS: tuple[tuple[str, str], ...] = (
    (f"request.name.endsWith('{SUFFIX}')", f"{ISSUER} may only act on what is named *{SUFFIX}"),
    (
        "request.resource.resource != 'roles' || object == null"
        f" || object.rules.all(r, r.resources == ['{_DISPLAY}'] && has(r.resourceNames)"
        " && size(r.resourceNames) == 1)",
        f"{ISSUER} may only grant access to the display of one machine",
    ),
    (
        # Not its own cluster role, which would hand its rights to somebody without these limits.
        "request.resource.resource != 'rolebindings' || object == null"
        " || object.roleRef.kind == 'Role' && object.roleRef.name == request.name",
        f"{ISSUER} may only bind the role of the same name",
    ),
)


def console_proxy(namespace: str) -> list[JsonObject]:
    """All of it. Its rights come after their limits."""
    return [
        *_restriction(namespace),
        *vm_console_proxy.COMPONENT.access(namespace),
        ACCESS.cluster_role(GENERATOR_ROLE, [rule(TOKEN_GROUP, "virtualmachines/vnc", ("get",))]),
    ]


def _restriction(namespace: str) -> list[JsonObject]:
    """A policy and its binding. RBAC cannot limit rights to names that end in something."""
    user = f"system:serviceaccount:{namespace}:{ISSUER}"
    policy: JsonObject = {
        "apiVersion": _ADMISSION,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": _POLICY},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    _rule("", "serviceaccounts", "serviceaccounts/token"),
                    _rule("rbac.authorization.k8s.io", "roles", "rolebindings"),
                ]
            },
            "matchConditions": [{"name": ISSUER, "expression": f'request.userInfo.username == "{user}"'}],
            "validations": [
                {"expression": expression, "message": message, "reason": "Forbidden"}
                for expression, message in _VALIDATIONS
            ],
        },
    }
    binding: JsonObject = {
        "apiVersion": _ADMISSION,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": _BINDING},
        "spec": {"policyName": _POLICY, "validationActions": ["Deny"]},
    }
    return [policy, binding]


def _rule(group: str, *resources: str) -> JsonObject:
    return {
        "apiGroups": [group],
        "apiVersions": ["*"],
        "operations": ["CREATE", "UPDATE", "DELETE"],
        "resources": list(resources),
        "scope": "*",
    }
