"""ValidatingAdmissionPolicies about plugins, there while the gate ``Plugins`` is on."""

from __future__ import annotations

from kubecore.json import JsonObject
from virtplane.api import labels
from virtplane.api.launcherpods import PLUGIN_SOCKETS
from virtplane.api.paths import PLUGIN_SOCKET_DIR

_GROUP = "admissionregistration.k8s.io/v1"
_PLUGINS = {
    "apiGroups": ["plugin.kubevirt.io"],
    "apiVersions": ["v1alpha1"],
    "operations": ["CREATE", "UPDATE"],
    "resources": ["plugins"],
}
_PODS = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE", "UPDATE"],
    "resources": ["pods", "pods/ephemeralcontainers"],
}

Rule = tuple[str, str]
"""An expression that must hold, and what is said where it does not."""


def _every(hooks: str, rule: str) -> str:
    """A rule about each `hook` of a list, which may be missing."""
    return f"!has(object.spec.{hooks}) || object.spec.{hooks}.all(hook, {rule})"


def _strategy(of: str) -> str:
    return f"!has({of}.failureStrategy) || {of}.failureStrategy in ['Fail', 'Ignore']"


_NO_STRATEGY = "failureStrategy must be either 'Fail' or 'Ignore'"
_POINTS = [
    f"{when}{what}"
    for what in ("VMStart", "VMStop", "MigrationSource", "MigrationTarget")
    for when in ("Pre", "Post")
]
_VALID: tuple[Rule, ...] = (
    (
        _every("domainHooks", "has(hook.cel) != has(hook.sidecar)"),
        "exactly one of cel or sidecar must be specified for each domain hook",
    ),
    (_every("domainHooks", _strategy("hook")), _NO_STRATEGY),
    (_every("nodeHooks", _strategy("hook")), _NO_STRATEGY),
    (
        _every("nodeHooks", f"hook.permittedHooks.all(point, point in {_POINTS})"),
        "permittedHooks must only contain valid node hook points",
    ),
    (_strategy("object.spec"), _NO_STRATEGY),
)
_LISTS = (
    "domainHooks",
    "nodeHooks",
    "mutatingAdmissionPolicies",
    "validatingAdmissionPolicies",
    "mutatingAdmissionWebhooks",
    "validatingAdmissionWebhooks",
)
_EFFECTIVE: tuple[Rule, ...] = (
    (
        " || ".join(f"(has(object.spec.{name}) && size(object.spec.{name}) > 0)" for name in _LISTS),
        "no hooks or admission references are defined; this plugin will have no effect",
    ),
)


def _sidecar(rule: str) -> str:
    return _every("domainHooks", f"!has(hook.sidecar) || {rule}")


_SOCKETS: tuple[Rule, ...] = (
    (_sidecar("hook.sidecar.socketPath.endsWith('.sock')"), "sidecar socketPath must end with .sock"),
    (
        _sidecar("size(hook.sidecar.socketPath) <= 108"),
        "sidecar socketPath must not exceed 108 characters (Unix socket limit)",
    ),
    (
        _sidecar(f"hook.sidecar.socketPath.startsWith('{PLUGIN_SOCKET_DIR}/' + object.metadata.name + '/')"),
        f"sidecar socketPath must start with {PLUGIN_SOCKET_DIR}/<plugin-name>/",
    ),
)


def _apart(containers: str, others: str = "") -> str:
    """Of a pod's containers, those that mount the sockets' volume have one folder of it."""
    mine = (
        f"{others}!has(c.volumeMounts)"
        f" || c.volumeMounts.all(m, m.name != '{PLUGIN_SOCKETS}' || (has(m.subPath) && m.subPath != ''))"
    )
    return f"(!has(object.spec.{containers}) || object.spec.{containers}.all(c, {mine}))"


_SUBPATHS: tuple[Rule, ...] = (
    (
        " && ".join(
            (
                _apart("containers", "c.name == 'compute' || "),
                _apart("initContainers"),
                _apart("ephemeralContainers"),
            )
        ),
        "sidecar containers must use subPath when mounting the plugin socket volume",
    ),
)


def plugin_policies() -> list[JsonObject]:
    """Four policies, each with its binding."""
    launchers = {"objectSelector": {"matchLabels": {labels.APP: "virt-launcher"}}}
    return [
        *_policy("validation", _PLUGINS, _VALID),
        *_policy("warning", _PLUGINS, _EFFECTIVE, warns=True),
        *_policy("sidecar-subpath", _PODS, _SUBPATHS, launchers),
        *_policy("socket-path", _PLUGINS, _SOCKETS),
    ]


def _policy(
    what: str,
    rule: JsonObject,
    rules: tuple[Rule, ...],
    matching: JsonObject | None = None,
    *,
    warns: bool = False,
) -> list[JsonObject]:
    name = f"kubevirt-plugin-{what}"
    policy = {
        "apiVersion": _GROUP,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": f"{name}-policy"},
        "spec": {
            "failurePolicy": "Ignore" if warns else "Fail",
            "matchConstraints": {"resourceRules": [rule], **(matching or {})},
            "validations": [{"expression": expression, "message": message} for expression, message in rules],
        },
    }
    binding = {
        "apiVersion": _GROUP,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": f"{name}-binding", "labels": {labels.APP: name}},
        "spec": {
            "policyName": f"{name}-policy",
            "validationActions": ["Warn" if warns else "Deny"],
            "matchResources": {"resourceRules": [rule]},
        },
    }
    return [policy, binding]
