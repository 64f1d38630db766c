"""Services: what their type completes, addresses and ports, what may change."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.unit.kindling.apiserver.kinds.conftest import Kinds

from kubecore.json import JsonObject, deep_copy

PORTS = [{"port": 80}]


def spec(kinds: Kinds, **fields: Any) -> JsonObject:
    made, problems = kinds.create("services", {"spec": {"ports": copy.deepcopy(PORTS), **fields}})
    assert problems == []
    found: JsonObject = made["spec"]
    return found


@pytest.mark.feature("ACC-25")
def test_a_plain_service_gets_an_address_of_the_cluster(kinds: Kinds) -> None:
    assert spec(kinds) == {
        "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
        "sessionAffinity": "None",
        "type": "ClusterIP",
        "internalTrafficPolicy": "Cluster",
        "ipFamilyPolicy": "SingleStack",
        "ipFamilies": ["IPv4"],
        "clusterIP": "10.96.0.2",
        "clusterIPs": ["10.96.0.2"],
    }


def test_headless_services_have_no_address(kinds: Kinds) -> None:
    with_selector = spec(kinds, clusterIP="None", selector={"a": "b"})
    assert with_selector["clusterIPs"] == ["None"]
    assert with_selector["ipFamilies"] == ["IPv4"]
    without = spec(kinds, clusterIP="None")
    assert (without["ipFamilyPolicy"], without["ipFamilies"]) == ("RequireDualStack", ["IPv4", "IPv6"])
    assert kinds.addresses.ips == set()


@pytest.mark.feature("ACC-25")
def test_node_ports_are_given_for_exposed_types(kinds: Kinds) -> None:
    assert spec(kinds, type="NodePort")["ports"][0]["nodePort"] == 30000
    assert spec(kinds, type="LoadBalancer")["ports"][0]["nodePort"] == 30001
    unexposed = spec(kinds, type="LoadBalancer", allocateLoadBalancerNodePorts=False)
    assert "nodePort" not in unexposed["ports"][0]


def test_tcp_and_udp_of_one_port_share_their_node_port(kinds: Kinds) -> None:
    ports = [{"name": "t", "port": 53}, {"name": "u", "port": 53, "protocol": "UDP"}]
    made = spec(kinds, type="NodePort", ports=ports)
    assert made["ports"][0]["nodePort"] == made["ports"][1]["nodePort"]


def test_local_load_balancers_get_a_port_for_health_checks(kinds: Kinds) -> None:
    made = spec(kinds, type="LoadBalancer", externalTrafficPolicy="Local")
    assert made["healthCheckNodePort"] in kinds.addresses.ports


def test_affinity_to_clients_lasts_three_hours(kinds: Kinds) -> None:
    made = spec(kinds, sessionAffinity="ClientIP")
    assert made["sessionAffinityConfig"] == {"clientIP": {"timeoutSeconds": 10800}}


def test_external_names_have_neither_address_nor_policies(kinds: Kinds) -> None:
    made, problems = kinds.create(
        "services", {"spec": {"type": "ExternalName", "externalName": "a.example.com"}}
    )
    assert problems == []
    assert made["spec"] == {
        "type": "ExternalName",
        "externalName": "a.example.com",
        "sessionAffinity": "None",
    }


def test_an_address_is_had_only_once(kinds: Kinds) -> None:
    address = spec(kinds)["clusterIP"]
    _, problems = kinds.create("services", {"spec": {"ports": PORTS, "clusterIP": address}})
    assert problems == [
        f'spec.clusterIPs: Invalid value: ["{address}"]: failed to allocate IP {address}: '
        "provided IP is already allocated"
    ]


def test_what_a_failed_request_took_is_given_back(kinds: Kinds) -> None:
    strategy = kinds.definition("services").strategy
    ctx = kinds.context("services")
    obj = kinds.read("services", {"spec": {"type": "NodePort", "ports": PORTS}})
    strategy.prepare_for_create(ctx, obj)
    assert strategy.validate(ctx, obj) == []
    assert kinds.addresses.ips
    for undo in ctx.rollbacks:
        undo()
    assert (kinds.addresses.ips, kinds.addresses.ports) == (set(), set())


def test_a_deleted_service_gives_back_what_it_had(kinds: Kinds) -> None:
    made, _ = kinds.create("services", {"spec": {"type": "NodePort", "ports": PORTS}})
    kinds.definition("services").strategy.after_delete(kinds.context("services"), made)
    assert (kinds.addresses.ips, kinds.addresses.ports) == (set(), set())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"ports": []}, "spec.ports: Required value"),
        ({"ports": [{"port": 80}, {"port": 81}]}, "spec.ports[0].name: Required value"),
        (
            {"ports": [{"port": 80, "name": "a"}, {"port": 80, "name": "b"}]},
            'spec.ports[1]: Duplicate value: {"Name":"","Protocol":"TCP","AppProtocol":null,'
            '"Port":80,"TargetPort":0,"NodePort":0}',
        ),
        (
            {"type": "Odd"},
            'spec.type: Unsupported value: "Odd": supported values: "ClusterIP", "ExternalName"',
        ),
        (
            {"ports": [{"port": 80, "nodePort": 30080}]},
            "spec.ports[0].nodePort: Forbidden: may not be used when",
        ),
        (
            {"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]},
            "spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range",
        ),
        ({"clusterIP": "x"}, 'spec.clusterIPs[0]: Invalid value: "x": must be a valid IP address'),
        (
            {"ipFamilies": ["IPv6"]},
            'spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster',
        ),
        (
            {"externalIPs": ["127.0.0.1"]},
            'spec.externalIPs[0]: Invalid value: "127.0.0.1": may not be in the loopback',
        ),
        (
            {"externalTrafficPolicy": "Local"},
            'spec.externalTrafficPolicy: Invalid value: "Local": may only be set',
        ),
        (
            {"loadBalancerSourceRanges": ["10.0.0.0/8"]},
            "spec.LoadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'",
        ),
        (
            {"type": "LoadBalancer", "clusterIP": "None"},
            'spec.clusterIPs[0]: Invalid value: "None": may not be set',
        ),
        ({"sessionAffinity": "Odd"}, 'spec.sessionAffinity: Unsupported value: "Odd"'),
    ],
)
def test_a_service_that_makes_no_sense_is_refused(kinds: Kinds, fields: JsonObject, message: str) -> None:
    _, problems = kinds.create("services", {"spec": {"ports": copy.deepcopy(PORTS), **fields}})
    assert problems[0].startswith(message)


def test_a_manifest_applied_again_keeps_what_the_server_filled_in(kinds: Kinds) -> None:
    made, _ = kinds.create("services", {"spec": {"type": "NodePort", "ports": PORTS}})
    again, problems = kinds.update("services", made, {"spec": {"type": "NodePort", "ports": PORTS}})
    assert problems == []
    assert again["spec"] == made["spec"]


def test_the_address_stays(kinds: Kinds) -> None:
    made, _ = kinds.create("services", {"spec": {"ports": PORTS}})
    other = {**made["spec"], "clusterIP": "10.96.0.77", "clusterIPs": ["10.96.0.77"]}
    _, problems = kinds.update("services", made, {"spec": other})
    assert problems == ['spec.clusterIPs[0]: Invalid value: ["10.96.0.77"]: may not change once set']


def test_a_class_of_load_balancers_on_another_service_is_refused_by_both_rules(kinds: Kinds) -> None:
    made, _ = kinds.create("services", {"spec": {"ports": PORTS}})
    _, problems = kinds.update("services", made, {"spec": {**made["spec"], "loadBalancerClass": "a/b"}})
    text = "spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'"
    assert problems == [text, text]


def test_turning_a_load_balancer_into_a_plain_service_drops_what_only_it_had(kinds: Kinds) -> None:
    made, _ = kinds.create("services", {"spec": {"type": "LoadBalancer", "ports": PORTS}})
    made["status"] = {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}
    plain, problems = kinds.update("services", made, {"spec": {**made["spec"], "type": "ClusterIP"}})
    assert problems == []
    assert "nodePort" not in plain["spec"]["ports"][0]
    assert "allocateLoadBalancerNodePorts" not in plain["spec"]
    assert "externalTrafficPolicy" not in plain["spec"]
    assert plain["status"] == {"loadBalancer": {}}


def test_turning_an_exposed_service_into_a_name_drops_its_addresses_and_ports(kinds: Kinds) -> None:
    made, _ = kinds.create("services", {"spec": {"type": "NodePort", "ports": PORTS}})
    wanted = {**made["spec"], "type": "ExternalName", "externalName": "a.example.com"}
    name, problems = kinds.update("services", made, {"spec": wanted})
    assert problems == []
    assert not {"clusterIP", "clusterIPs"} & set(name["spec"])
    assert all("nodePort" not in port for port in name["spec"]["ports"])


def test_freed_ports_are_given_back_when_the_change_is_written(kinds: Kinds) -> None:
    made, _ = kinds.create("services", {"spec": {"type": "NodePort", "ports": PORTS}})
    strategy, ctx = kinds.definition("services").strategy, kinds.context("services")
    new = deep_copy(made)
    new["spec"]["type"] = "ClusterIP"
    strategy.prepare_for_update(ctx, new, made)
    assert strategy.validate_update(ctx, new, made) == []
    assert kinds.addresses.ports == {30000}
    for action in ctx.commits:
        action()
    assert kinds.addresses.ports == set()


def test_addresses_in_the_status_are_addresses(kinds: Kinds) -> None:
    made, _ = kinds.create("services", {"spec": {"type": "LoadBalancer", "ports": PORTS}})
    made["status"] = {"loadBalancer": {"ingress": [{"ip": "bad"}]}}
    strategy = kinds.part("services", "status")
    (found,) = strategy.validate_update(kinds.context("services"), made, made)
    assert found.field == "status.loadBalancer.ingress[0].ip"


@pytest.mark.parametrize(
    ("document", "cells"),
    [
        (
            {
                "spec": {
                    "type": "LoadBalancer",
                    "clusterIPs": ["10.96.0.9"],
                    "ports": [{"port": 80, "nodePort": 30001}],
                }
            },
            ["x", "LoadBalancer", "10.96.0.9", "<pending>", "80:30001/TCP", "<unknown>", "<none>"],
        ),
        (
            {"spec": {"clusterIPs": ["None"], "selector": {"b": "2", "a": "1"}}},
            ["x", "ClusterIP", "None", "<none>", "<none>", "<unknown>", "a=1,b=2"],
        ),
        (
            {"spec": {"type": "ExternalName", "externalName": "a.b"}},
            ["x", "ExternalName", "<none>", "a.b", "<none>", "<unknown>", "<none>"],
        ),
    ],
)
def test_services_print_addresses_and_ports(kinds: Kinds, document: JsonObject, cells: list[str]) -> None:
    assert kinds.row("services", document) == cells


def test_deprecated_and_pointless_settings_are_warned_about(kinds: Kinds) -> None:
    strategy = kinds.definition("services").strategy
    obj = kinds.read("services", {"spec": {"externalIPs": ["192.0.2.1"], "ports": PORTS}})
    assert strategy.warnings(kinds.context("services"), obj, None) == [
        "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
    ]
    assert strategy.warnings(kinds.context("services"), obj, obj) == []
