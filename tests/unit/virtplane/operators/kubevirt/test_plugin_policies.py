"""The admission policies about plugins, as the API server judges by them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.admission import Cluster, StubWebhooks

from kindling.apiserver.admission.validating_policies import ValidatingPolicies
from kindling.apiserver.crds.resources import resource_definitions
from kindling.apiserver.kinds.served import builtin_definitions
from kubecore.errors import StatusError
from kubecore.json import JsonObject, deep_copy
from kubecore.resources import (
    NAMESPACES,
    PODS,
    VALIDATING_ADMISSION_POLICIES,
    VALIDATING_ADMISSION_POLICY_BINDINGS,
)
from virtplane.api import crds
from virtplane.api.resources import PLUGINS
from virtplane.operators.kubevirt.strategy.pluginpolicies import plugin_policies

CEL = {"cel": {"expression": "Domain{}"}}
FOLDER = "/var/run/kubevirt-plugin/my-plugin/"
SIDECAR = {"socketPath": f"{FOLDER}hook.sock"}
NO_STRATEGY = "failureStrategy must be either 'Fail' or 'Ignore'"
EITHER = "exactly one of cel or sidecar must be specified for each domain hook"


class Api:
    """The admission of a cluster with the policies on it."""

    def __init__(self) -> None:
        (plugins,) = (each for each in crds.DEFINITIONS if each.resource == PLUGINS)
        offered = resource_definitions(crds.custom_resource_definition(plugins), StubWebhooks({}))
        self._cluster = Cluster([*builtin_definitions(), *offered])
        self._cluster.objects.put(NAMESPACES, {"metadata": {"name": "ns"}})
        self._policies = ValidatingPolicies(self._cluster.environment)
        kinds = {
            kind.kind: kind for kind in (VALIDATING_ADMISSION_POLICIES, VALIDATING_ADMISSION_POLICY_BINDINGS)
        }
        for made in plugin_policies():
            kind = kinds[made["kind"]]
            self._cluster.definition(kind).strategy.default(made)
            self._cluster.objects.put(kind, made)
        self.warnings: list[str] = []

    async def plugin(self, spec: JsonObject, name: str = "my-plugin") -> str:
        """What is said of a plugin; the empty string where it is let pass."""
        return await self._refusal(PLUGINS, {"metadata": {"name": name}, "spec": deep_copy(spec)})

    async def pod(self, spec: JsonObject, label: str = "virt-launcher", subresource: str = "") -> str:
        """What is said of a pod that is changed so."""
        pod = {"metadata": {"name": "p", "labels": {"kubevirt.io": label}}, "spec": deep_copy(spec)}
        return await self._refusal(PODS, pod, subresource)

    async def _refusal(self, kind: Any, new: JsonObject, subresource: str = "") -> str:
        old = deep_copy(new) if subresource else None
        operation = "UPDATE" if subresource else "CREATE"
        request = self._cluster.request(kind, new, old=old, operation=operation, subresource=subresource)
        try:
            await self._policies.validate(request)
        except StatusError as error:
            return error.message.partition("denied request: ")[2]
        finally:
            self.warnings = request.ctx.warnings
        return ""


@pytest.fixture
def api() -> Api:
    return Api()


def node_hook(**others: Any) -> JsonObject:
    return {"socket": "/s", "permittedHooks": ["PreVMStart"], **others}


@pytest.mark.parametrize(
    ("spec", "refusal"),
    [
        ({"domainHooks": [CEL]}, ""),
        (
            {"domainHooks": [{"sidecar": {"socketPath": f"{FOLDER}hook.sock"}, "failureStrategy": "Ignore"}]},
            "",
        ),
        ({"nodeHooks": [node_hook(failureStrategy="Fail")], "failureStrategy": "Ignore"}, ""),
        ({"domainHooks": [{}]}, EITHER),
        ({"domainHooks": [CEL, {**CEL, "sidecar": SIDECAR}]}, EITHER),
        ({"domainHooks": [{**CEL, "failureStrategy": "Retry"}]}, NO_STRATEGY),
        ({"nodeHooks": [node_hook(failureStrategy="ignore")]}, NO_STRATEGY),
        ({"domainHooks": [CEL], "failureStrategy": "Retry"}, NO_STRATEGY),
        (
            {"nodeHooks": [node_hook(permittedHooks=["PreVMStart", "PreVMPause"])]},
            "permittedHooks must only contain valid node hook points",
        ),
        ({"nodeHooks": [node_hook(permittedHooks=["PostMigrationSource", "PostMigrationTarget"])]}, ""),
        (
            {"domainHooks": [{"sidecar": {"socketPath": f"{FOLDER}hook"}}]},
            "sidecar socketPath must end with .sock",
        ),
        (
            {"domainHooks": [{"sidecar": {"socketPath": f"{FOLDER}{'x' * 80}.sock"}}]},
            "sidecar socketPath must not exceed 108 characters (Unix socket limit)",
        ),
        (
            {"domainHooks": [{"sidecar": {"socketPath": "/var/run/kubevirt-plugin/other/hook.sock"}}]},
            "sidecar socketPath must start with /var/run/kubevirt-plugin/<plugin-name>/",
        ),
    ],
)
async def test_plugins_are_as_kubevirt_wants_them(api: Api, spec: JsonObject, refusal: str) -> None:
    assert await api.plugin(spec) == refusal
    assert api.warnings == []


async def test_a_plugin_without_effect_is_warned_of(api: Api) -> None:
    assert await api.plugin({"domainHooks": [], "failureStrategy": "Fail"}) == ""
    (warning,) = api.warnings
    assert warning.endswith("no hooks or admission references are defined; this plugin will have no effect")
    for name in ("mutatingAdmissionPolicies", "validatingAdmissionWebhooks"):
        assert await api.plugin({name: [{"name": "x"}]}) == ""
        assert api.warnings == []


def container(name: str, *paths: str) -> JsonObject:
    mounts = [
        {"name": "kubevirt-plugin-sockets", "mountPath": f"/m{index}", **({"subPath": path} if path else {})}
        for index, path in enumerate(paths)
    ]
    return {"name": name, "image": "x", "volumeMounts": [{"name": "other", "mountPath": "/o"}, *mounts]}


COMPUTE = container("compute", "")


@pytest.mark.parametrize(
    ("spec", "admitted"),
    [
        ({"containers": [COMPUTE, container("plugin", "my-plugin"), {"name": "bare", "image": "x"}]}, True),
        ({"containers": [COMPUTE, container("plugin", "")]}, False),
        ({"containers": [COMPUTE, container("plugin", "my-plugin", "")]}, False),
        ({"containers": [COMPUTE], "initContainers": [container("init", "")]}, False),
        ({"containers": [COMPUTE], "initContainers": [container("init", "my-plugin")]}, True),
    ],
)
async def test_a_sidecar_sees_its_own_sockets_alone(api: Api, spec: JsonObject, admitted: bool) -> None:
    message = "sidecar containers must use subPath when mounting the plugin socket volume"
    assert await api.pod(spec) == ("" if admitted else message)
    assert await api.pod(spec, label="something-else") == ""


async def test_added_containers_see_no_other_sockets_either(api: Api) -> None:
    for path, admitted in (("", False), ("my-plugin", True)):
        spec = {"containers": [COMPUTE], "ephemeralContainers": [container("debug", path)]}
        assert (await api.pod(spec, subresource="ephemeralcontainers") == "") is admitted
