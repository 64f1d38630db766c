"""Discovery of virt-api: groups, resources, version, health."""

from __future__ import annotations

import platform
from collections.abc import Sequence

from kubecore.json import JsonObject
from virtplane.api.resources import SUBRESOURCES_GROUP, SUBRESOURCES_VERSIONS
from virtplane.api.vnc_access import TOKEN_GROUP, TOKEN_VERSIONS

_EVERYWHERE = [{"clientCIDR": "0.0.0.0/0", "serverAddress": ""}]
_INSTANCE_SUBRESOURCES = (
    "vnc",
    "vnc/screenshot",
    "console",
    "portforward",
    "backup",
    "redefine-checkpoint",
    "pause",
    "unpause",
    "freeze",
    "unfreeze",
    "reset",
    "softreboot",
    "guestosinfo",
    "userlist",
    "filesystemlist",
    "addvolume",
    "removevolume",
    "objectgraph",
    "sev/fetchcertchain",
    "sev/querylaunchmeasurement",
    "sev/setupsession",
    "sev/injectlaunchsecret",
    "evacuate/cancel",
)
_MACHINE_SUBRESOURCES = (
    "start",
    "stop",
    "restart",
    "migrate",
    "expand-spec",
    "objectgraph",
    "evacuate/cancel",
)


def group() -> JsonObject:
    """The served group. Its name lacks a letter, as in KubeVirt."""
    return {**_group(SUBRESOURCES_GROUP, SUBRESOURCES_VERSIONS), "name": "subresource.kubevirt.io"}


def token_group() -> JsonObject:
    """The group in which tokens for displays are asked for."""
    return _group(TOKEN_GROUP, TOKEN_VERSIONS)


def _group(name: str, served: Sequence[str]) -> JsonObject:
    versions = [{"groupVersion": f"{name}/{version}", "version": version} for version in served]
    return {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": name,
        "versions": versions,
        "preferredVersion": versions[0],
        "serverAddressByClientCIDRs": _EVERYWHERE,
    }


def groups() -> JsonObject:
    """All groups that are served."""
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group(), token_group()]}


def resource_list(version: str) -> JsonObject:
    """The subresources of a version, each as a resource."""
    names = ["expand-vm-spec"]
    names += [f"virtualmachineinstances/{name}" for name in _INSTANCE_SUBRESOURCES]
    names += [f"virtualmachines/{name}" for name in _MACHINE_SUBRESOURCES]
    return _resources(f"{SUBRESOURCES_GROUP}/{version}", names)


def token_resource_list(version: str) -> JsonObject:
    """What tokens are asked for."""
    return _resources(f"{TOKEN_GROUP}/{version}", ["virtualmachines/vnc"])


def _resources(group_version: str, names: Sequence[str]) -> JsonObject:
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": [
            {"name": name, "singularName": "", "namespaced": True, "kind": "", "verbs": None}
            for name in names
        ],
    }


def root_paths() -> JsonObject:
    """The paths that are served."""
    paths = ["/apis", "/apis/" + SUBRESOURCES_GROUP]
    paths += [f"/apis/{SUBRESOURCES_GROUP}/{version}" for version in SUBRESOURCES_VERSIONS]
    paths += [f"/apis/{TOKEN_GROUP}", *(f"/apis/{TOKEN_GROUP}/{version}" for version in TOKEN_VERSIONS)]
    return {"paths": [*paths, "/healthz", "/openapi/v2", "/openapi/v3"]}


def version(release: str) -> JsonObject:
    """What this server is."""
    return {
        "gitVersion": release,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "",
        "goVersion": f"python{platform.python_version()}",
        "compiler": platform.python_implementation().lower(),
        "platform": f"linux/{'amd64' if platform.machine() == 'x86_64' else platform.machine()}",
    }
