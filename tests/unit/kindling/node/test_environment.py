"""Environments, commands and downward fields of containers."""

from __future__ import annotations

import time
from typing import Any

import pytest

from kindling.node.pods.downward_api import FieldProblem, NodeFacts, field_value, resource_value
from kindling.node.pods.environment import (
    ConfigProblem,
    EnvironmentContext,
    Sources,
    build_environment,
    command_line,
    expand,
    service_environment,
)

NODE = NodeFacts("node01", ("10.64.0.11",), {"cpu": "2", "memory": "1000Mi"})
POD: dict[str, Any] = {
    "metadata": {
        "name": "p",
        "namespace": "ns",
        "uid": "u",
        "labels": {"b": "2", "a": 'quo"te'},
        "annotations": {"n": "o"},
    },
    "spec": {
        "nodeName": "node01",
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1500m"}}}],
    },
}


def context(**sources: Any) -> EnvironmentContext:
    return EnvironmentContext(POD, NODE, Sources(**sources), ("10.64.1.2",))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(A)2", "12"),
        ("$$(A)", "$(A)"),
        ("$(NONE)", "$(NONE)"),
        ("$A $", "$A $"),
        ("$(A", "$(A"),
        ("$$$(A)", "$1"),
    ],
)
def test_references_are_expanded_as_kubernetes_does(text: str, expected: str) -> None:
    assert expand(text, ({"A": "1"},)) == expected


def test_variables_that_double_each_other_are_refused_before_they_take_the_agents_memory() -> None:
    doubling = [{"name": f"A{n}", "value": f"$(A{n - 1})$(A{n - 1})"} for n in range(1, 26)]
    container = {"name": "c", "env": [{"name": "A0", "value": "x" * 16}, *doubling]}
    with pytest.raises(ConfigProblem, match="longer than"):
        build_environment(container, context())


def test_many_references_to_one_long_value_are_refused() -> None:
    long = "x" * 131_000
    copies = [{"name": f"B{n}", "value": "$(A)"} for n in range(1000)]
    with pytest.raises(ConfigProblem, match="longer than"):
        build_environment({"name": "c", "env": [{"name": "A", "value": long}, *copies]}, context())
    with pytest.raises(ConfigProblem, match="longer than"):
        command_line({"name": "c", "command": ["run"], "args": ["$(A)"] * 1000}, {"A": long})


def test_one_config_map_under_many_prefixes_is_refused() -> None:
    sources = [{"prefix": f"P{n}_", "configMapRef": {"name": "m"}} for n in range(1000)]
    with pytest.raises(ConfigProblem, match="longer than"):
        build_environment(
            {"name": "c", "envFrom": sources}, context(config_maps={"m": {"data": {"k": "x" * 100_000}}})
        )


def test_services_of_a_namespace_with_too_many_ports_are_refused() -> None:
    ports = [{"port": port, "protocol": "TCP", "name": f"p{port}"} for port in range(1, 6001)]
    services = [
        {"metadata": {"name": f"s{n}", "namespace": "ns"}, "spec": {"clusterIP": "10.96.0.9", "ports": ports}}
        for n in range(10)
    ]
    with pytest.raises(ConfigProblem, match="longer than"):
        service_environment(POD, services)


def test_references_that_never_end_are_looked_through_once() -> None:
    text = "$(" * 60_000
    started = time.process_time()
    assert expand(text, ({},)) == text
    assert time.process_time() - started < 2
    assert expand("$(A) $(B $(A", ({"A": "1"},)) == "1 $(B $(A"


def test_the_longest_argument_of_a_program_is_still_expanded() -> None:
    assert len(expand("$(A)" * 2 + "y", ({"A": "x" * 65_535},))) == 131_071


def test_later_variables_may_refer_to_earlier_ones_and_to_sources() -> None:
    container = {
        "name": "c",
        "envFrom": [{"prefix": "P_", "configMapRef": {"name": "m"}}],
        "env": [{"name": "X", "value": "$(P_k)-x"}, {"name": "Y", "value": "$(X)"}],
        "command": ["run", "$(Y)"],
        "args": ["$(Z)"],
    }
    values = build_environment(container, context(config_maps={"m": {"data": {"k": "v", "": "x"}}}))
    assert (values["X"], values["Y"]) == ("v-x", "v-x")
    assert command_line(container, values) == (["run", "v-x"], ["$(Z)"])


def test_a_missing_config_map_is_named_unless_it_is_optional() -> None:
    reference: dict[str, Any] = {"name": "m", "key": "k"}
    container = {"name": "c", "env": [{"name": "A", "valueFrom": {"configMapKeyRef": reference}}]}
    with pytest.raises(ConfigProblem, match='configmap "m" not found'):
        build_environment(container, context())
    with pytest.raises(ConfigProblem, match="couldn't find key k in ConfigMap ns/m"):
        build_environment(container, context(config_maps={"m": {"data": {}}}))
    reference["optional"] = True
    assert "A" not in build_environment(container, context())


def test_secrets_are_decoded() -> None:
    container = {
        "name": "c",
        "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
    }
    values = build_environment(container, context(secrets={"s": {"data": {"k": "d29yZA=="}}}))
    assert values["A"] == "word"


def test_services_of_the_namespace_and_the_api_appear_as_variables() -> None:
    api = {
        "metadata": {"name": "kubernetes", "namespace": "default"},
        "spec": {"clusterIP": "10.64.240.1", "ports": [{"name": "https", "port": 443, "protocol": "TCP"}]},
    }
    other = {
        "metadata": {"name": "my-web", "namespace": "ns"},
        "spec": {"clusterIP": "10.64.240.7", "ports": [{"port": 80}]},
    }
    foreign = {
        "metadata": {"name": "far", "namespace": "else"},
        "spec": {"clusterIP": "10.64.240.8", "ports": [{"port": 80}]},
    }
    values = service_environment(POD, [api, other, foreign])
    assert values["KUBERNETES_SERVICE_HOST"] == "10.64.240.1"
    assert values["KUBERNETES_SERVICE_PORT_HTTPS"] == "443"
    assert values["MY_WEB_PORT_80_TCP"] == "tcp://10.64.240.7:80"
    assert not any(name.startswith("FAR") for name in values)


def test_downward_fields_answer_and_unknown_ones_are_refused() -> None:
    assert field_value(POD, "metadata.labels", NODE) == 'a="quo\\"te"\nb="2"'
    assert field_value(POD, "metadata.annotations['n']", NODE) == "o"
    assert field_value(POD, "status.podIP", NODE, ("10.64.1.2",)) == "10.64.1.2"
    assert field_value(POD, "status.hostIP", NODE) == "10.64.0.11"
    with pytest.raises(FieldProblem):
        field_value(POD, "spec.nothing", NODE)


def test_resources_are_divided_and_rounded_up_and_default_to_the_nodes() -> None:
    assert resource_value(POD, {"resource": "requests.cpu"}, "c", NODE) == "2"
    assert resource_value(POD, {"resource": "requests.cpu", "divisor": "1m"}, "c", NODE) == "1500"
    assert resource_value(POD, {"resource": "limits.memory", "divisor": "1Mi"}, "c", NODE) == "1000"
