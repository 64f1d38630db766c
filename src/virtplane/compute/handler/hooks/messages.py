"""The messages of hook sidecars and plugins: KubeVirt's ``kubevirt.hooks``, by their field numbers."""

from __future__ import annotations

from typing import Any

from kubecore.wire.interface import Interface, build_interface

INFO: dict[str, Any] = {
    "package": "kubevirt.hooks.info",
    "services": {"Info": {"Info": ["InfoParams", "InfoResult"]}},
    "messages": {
        "InfoParams": {},
        "InfoResult": {
            "name": [1, "string"],
            "versions": [4, "repeated string"],
            "hookPoints": [3, "repeated HookPoint"],
        },
        "HookPoint": {"name": [1, "string"], "priority": [2, "int32"]},
    },
}

_DEFINE: dict[str, Any] = {"OnDefineDomain": ["OnDefineDomainParams", "OnDefineDomainResult"]}
_CLOUD_INIT: dict[str, Any] = {"PreCloudInitIso": ["PreCloudInitIsoParams", "PreCloudInitIsoResult"]}
_SHUTDOWN: dict[str, Any] = {"Shutdown": ["ShutdownParams", "ShutdownResult"]}
_METHODS: dict[str, dict[str, Any]] = {
    "v1alpha1": _DEFINE,
    "v1alpha2": _DEFINE | _CLOUD_INIT,
    "v1alpha3": _DEFINE | _CLOUD_INIT | _SHUTDOWN,
}
_MESSAGES: dict[str, Any] = {
    "OnDefineDomainParams": {"domainXML": [1, "bytes"], "vmi": [2, "bytes"]},
    "OnDefineDomainResult": {"domainXML": [1, "bytes"]},
    "PreCloudInitIsoParams": {
        "cloudInitNoCloudSource": [1, "bytes"],
        "vmi": [2, "bytes"],
        "cloudInitData": [3, "bytes"],
    },
    "PreCloudInitIsoResult": {"cloudInitNoCloudSource": [1, "bytes"], "cloudInitData": [3, "bytes"]},
    "ShutdownParams": {},
    "ShutdownResult": {},
}

VERSIONS = ("v1alpha3", "v1alpha2", "v1alpha1")
"""The newest that a sidecar speaks is used."""


_PLUGINS = "kubevirt.hooks.plugins.v1alpha1"
PLUGINS: dict[str, Any] = {
    "package": _PLUGINS,
    "services": {
        "NodeHookService": {"ExecuteNodeHook": ["ExecuteNodeHookRequest", "ExecuteNodeHookResponse"]},
        "DomainHookService": {"MutateDomain": ["MutateDomainRequest", "MutateDomainResponse"]},
    },
    "messages": {
        "ExecuteNodeHookRequest": {
            "hookPoint": [1, "string"],
            "vmi": [2, "bytes"],
            "node_context": [3, "NodeContext"],
        },
        "NodeContext": {"node_name": [1, "string"]},
        "ExecuteNodeHookResponse": {},
        "MutateDomainRequest": {
            "domain_type": [1, "string"],
            "domain": [2, "bytes"],
            "vmi": [3, "bytes"],
            "sidecar_context": [4, "SidecarContext"],
        },
        "SidecarContext": {"invocation_context": [1, "string"]},
        "MutateDomainResponse": {"domain": [1, "bytes"]},
    },
}


def plugins() -> Interface:
    """The interfaces by which plugins are called."""
    return build_interface(_PLUGINS, PLUGINS)


def info() -> Interface:
    """The interface by which a sidecar says what it is."""
    return build_interface("kubevirt.hooks.info", INFO)


def callbacks(version: str) -> Interface:
    """The interface by which a sidecar of that version is called."""
    methods = _METHODS[version]
    used = {name for pair in methods.values() for name in pair}
    package = f"kubevirt.hooks.{version}"
    messages = {name: fields for name, fields in _MESSAGES.items() if name in used}
    services = {"Callbacks": methods}
    return build_interface(package, {"package": package, "services": services, "messages": messages})
