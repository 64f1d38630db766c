"""Admission of plugins, with the messages of KubeVirt."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.virtplane.compute.apiserver.admission.reviewing import ask, config

from kubecore.json import JsonObject
from virtplane.compute.apiserver.admission import Response

CEL = {"cel": {"expression": 'Domain{Title: "test"}'}}
SOCKET = "/var/run/kubevirt/plugins/test.sock"


def node_hook(**others: Any) -> JsonObject:
    return {"socket": SOCKET, "permittedHooks": ["PreVMStart"], **others}


async def admit(spec: JsonObject, *, old: JsonObject | None = None, gate: bool = True) -> Response:
    plugin = {
        "apiVersion": "plugin.kubevirt.io/v1alpha1",
        "kind": "Plugin",
        "metadata": {"name": "my-plugin"},
        "spec": spec,
    }
    settings = config("Plugins") if gate else config()
    return await ask("/plugin-validate", plugin, {**plugin, "spec": old} if old else None, settings=settings)


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"condition": 'vmi.Name == "test"', "domainHooks": [CEL]},
        {"condition": 'domainSpec.Name == "x"', "domainHooks": [CEL]},
        {"domainHooks": [{**CEL, "condition": 'vmi.Name == "test"', "timeout": "1m"}]},
        {"nodeHooks": [node_hook(condition="vmi.spec.domain.cpu.cores > 0", timeout="5s")]},
        {"domainHooks": [{"sidecar": {"socketPath": "/var/run/kubevirt-plugin/my-plugin/hook.sock"}}]},
    ],
)
async def test_valid_plugins_are_admitted_without_a_warning(spec: JsonObject) -> None:
    answer = await admit(spec)
    assert answer.allowed, answer.status
    assert answer.warnings == ()


async def test_plugins_are_made_with_the_gate_alone_and_may_be_changed_without() -> None:
    answer = await admit({"domainHooks": [CEL]}, gate=False)
    assert answer.status == {"code": 400, "message": "Plugins feature gate is not enabled"}
    assert (await admit({}, old={"domainHooks": [CEL]}, gate=False)).allowed


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        (
            {"domainHooks": [{"cel": {"expression": "invalid!!! syntax"}}]},
            "spec.domainHooks[0].cel.expression",
            "invalid CEL mutation expression: compiling expression: ERROR: <input>:1:8: Syntax error",
        ),
        (
            {"domainHooks": [CEL, {"cel": {"expression": 'Domainn{Title: "test"}'}}]},
            "spec.domainHooks[1].cel.expression",
            "undeclared reference to 'Domainn' (in container 'libvirtxml')",
        ),
        (
            {"domainHooks": [{"cel": {"expression": 'Domain{Memory: "not-a-struct"}'}}]},
            "spec.domainHooks[0].cel.expression",
            "invalid CEL mutation expression: compiling expression: ERROR",
        ),
        (
            {"domainHooks": [{**CEL, "condition": "vmi.Name"}]},
            "spec.domainHooks[0].condition",
            "invalid CEL condition expression: condition must return bool, got string",
        ),
        (
            {"condition": "vmi.Name"},
            "spec.condition",
            "invalid CEL condition expression: condition must return bool, got string",
        ),
        (
            {"nodeHooks": [node_hook(condition="invalid!!! condition")]},
            "spec.nodeHooks[0].condition",
            "invalid CEL condition expression: CEL compilation failed: ERROR",
        ),
    ],
)
async def test_expressions_must_compile(spec: JsonObject, field: str, message: str) -> None:
    answer = await admit(spec)
    assert not answer.allowed and answer.status is not None
    assert (answer.status["reason"], answer.status.get("code")) == ("Invalid", None)
    (cause,) = answer.status["details"]["causes"]
    assert (cause["field"], cause["reason"]) == (field, "FieldValueInvalid")
    assert message in cause["message"]
    assert answer.status["message"] == cause["message"]


@pytest.mark.parametrize(
    "path",
    [
        "/var/run/kubevirt-plugin/my-plugin/../other/hook.sock",
        "/var/run/kubevirt-plugin/my-plugin/./hook.sock",
        "/var/run/kubevirt-plugin/my-plugin//hook.sock",
        "/var/run/kubevirt-plugin/my-plugin/hook.sock/",
    ],
)
async def test_paths_of_sidecars_must_be_clean(path: str) -> None:
    answer = await admit({"domainHooks": [{"sidecar": {"socketPath": path}}]})
    assert not answer.allowed and answer.status is not None
    message = "socketPath must be a clean path (no '..' segments or redundant separators)"
    assert answer.status["message"] == message
    (cause,) = answer.status["details"]["causes"]
    assert cause["field"] == "spec.domainHooks[0].sidecar.socketPath"


async def test_the_message_names_the_first_cause_and_the_details_all() -> None:
    answer = await admit({"condition": "vmi.Name", "nodeHooks": [node_hook(condition="vmi.metadata.name")]})
    assert answer.status is not None
    causes = [cause["message"] for cause in answer.status["details"]["causes"]]
    assert causes == [
        "invalid CEL condition expression: condition must return bool, got string",
        "invalid CEL condition expression: CEL expression must return bool, got string",
    ]
    assert answer.status["message"] == causes[0]


async def test_timeouts_must_be_lengths_of_time() -> None:
    answer = await admit({"nodeHooks": [node_hook(timeout="soon")]})
    assert answer.status == {"code": 400, "message": 'time: invalid duration "soon"'}


@pytest.mark.parametrize(
    ("spec", "warning"),
    [
        (
            {"nodeHooks": [node_hook(permittedHooks=["PreVMStart", "PreMigrationSource"])]},
            "spec.nodeHooks[0].permittedHooks: the value PreMigrationSource is accepted,"
            " but has no effect yet",
        ),
        (
            {"nodeHooks": [node_hook(socket="/run/x.sock")]},
            'spec.nodeHooks[0].socket: socket path "/run/x.sock" is outside /var/run/kubevirt/,'
            " which virt-handler has of its node",
        ),
        (
            {"condition": 'domainSpec.Name == "x"', "nodeHooks": [node_hook()]},
            "spec.condition: node hooks know no domainSpec; where it is needed, guests do not start",
        ),
        (
            {"nodeHooks": [node_hook(timeout="1h")]},
            "spec.nodeHooks[0].timeout: calls end after 300 seconds",
        ),
        (
            {"mutatingAdmissionPolicies": [{"name": "x"}]},
            "spec.mutatingAdmissionPolicies: nothing reads this list;"
            " the objects that it names act by themselves",
        ),
    ],
)
async def test_what_has_no_effect_is_warned_of(spec: JsonObject, warning: str) -> None:
    answer = await admit(spec)
    assert answer.allowed
    assert answer.warnings == (warning,)
