"""Services of one address family and of two: what policy, families and addresses make of each other."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.kindling.apiserver.kinds.conftest import Addresses, Kinds

from kindling.apiserver.registry.addresses import AddressPool, AllocationError
from kubecore.json import JsonObject, deep_copy

PORTS = [{"port": 80, "protocol": "TCP", "targetPort": 80}]
BOTH, BOTH_IPS = ["IPv4", "IPv6"], ["10.96.0.2", "fd00:96::2"]


@pytest.fixture
def dual(kinds: Kinds) -> Kinds:
    """The kinds of a cluster with service addresses of both families."""
    kinds.addresses = Addresses(ranges="10.96.0.0/16,fd00:96::/112")
    return kinds


def made(kinds: Kinds, **fields: Any) -> JsonObject:
    service, problems = kinds.create("services", {"spec": {"ports": PORTS, **fields}})
    assert problems == []
    return service


def shown(service: JsonObject) -> tuple[str, list[str], list[str]]:
    spec = service["spec"]
    assert spec["clusterIP"] == spec["clusterIPs"][0]
    return spec["ipFamilyPolicy"], spec["ipFamilies"], spec["clusterIPs"]


def changed(kinds: Kinds, service: JsonObject, **fields: Any) -> tuple[JsonObject, list[str]]:
    """The service after an update of some fields; None takes a field away."""
    wanted = {key: value for key, value in {**service["spec"], **fields}.items() if value is not None}
    return kinds.update("services", service, {"spec": deep_copy(wanted)})


@pytest.mark.feature("ACC-30")
@pytest.mark.parametrize(
    ("fields", "policy", "families", "addresses"),
    [
        ({}, "SingleStack", ["IPv4"], ["10.96.0.2"]),
        ({"ipFamilyPolicy": "PreferDualStack"}, "PreferDualStack", BOTH, BOTH_IPS),
        ({"ipFamilyPolicy": "RequireDualStack"}, "RequireDualStack", BOTH, BOTH_IPS),
        ({"ipFamilies": ["IPv6"]}, "SingleStack", ["IPv6"], ["fd00:96::2"]),
        (
            {"ipFamilies": ["IPv6"], "ipFamilyPolicy": "PreferDualStack"},
            "PreferDualStack",
            BOTH[::-1],
            BOTH_IPS[::-1],
        ),
        ({"clusterIP": "fd00:96::9"}, "SingleStack", ["IPv6"], ["fd00:96::9"]),
        (
            {"clusterIP": "10.96.0.9", "ipFamilyPolicy": "RequireDualStack"},
            "RequireDualStack",
            BOTH,
            ["10.96.0.9", "fd00:96::2"],
        ),
        ({"clusterIP": "None", "selector": {"a": "b"}}, "SingleStack", ["IPv4"], ["None"]),
        ({"clusterIP": "None"}, "RequireDualStack", BOTH, ["None"]),
    ],
)
def test_a_service_gets_the_families_that_it_asks_for(
    dual: Kinds, fields: JsonObject, policy: str, families: list[str], addresses: list[str]
) -> None:
    assert shown(made(dual, **fields)) == (policy, families, addresses)


@pytest.mark.feature("ACC-30")
def test_a_cluster_of_one_family_does_what_it_can(kinds: Kinds) -> None:
    preferring = made(kinds, ipFamilyPolicy="PreferDualStack")
    assert shown(preferring) == ("PreferDualStack", ["IPv4"], ["10.96.0.2"])
    for fields, problem in (
        (
            {"ipFamilyPolicy": "RequireDualStack"},
            'spec.ipFamilyPolicy: Invalid value: "RequireDualStack": '
            "this cluster is not configured for dual-stack services",
        ),
        (
            {"clusterIP": "fd00::1"},
            'spec.clusterIPs[0]: Invalid value: ["fd00::1"]: IPv6 is not configured on this cluster',
        ),
    ):
        _, problems = kinds.create("services", {"spec": {"ports": PORTS, **fields}})
        assert problems == [problem]


@pytest.mark.feature("ACC-31")
@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        (
            {"ipFamilies": BOTH},
            "spec.ipFamilyPolicy: Invalid value: \"SingleStack\": must be 'RequireDualStack' or "
            "'PreferDualStack' when multiple IP families are specified",
        ),
        ({"ipFamilies": ["IPv4", "IPv4"]}, 'spec.ipFamilies[1]: Duplicate value: "IPv4"'),
        (
            {"ipFamilies": ["IPv5"]},
            'spec.ipFamilies[0]: Unsupported value: "IPv5": supported values: "IPv4", "IPv6"',
        ),
        (
            {"clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9", "10.96.0.8"]},
            'spec.clusterIPs: Invalid value: ["10.96.0.9","10.96.0.8"]: '
            "may specify no more than one IP for each IP family",
        ),
        (
            {"clusterIP": "10.96.0.9", "ipFamilies": ["IPv6"]},
            'spec.clusterIPs[0]: Invalid value: "10.96.0.9": '
            "expected an IPv6 value as indicated by `ipFamilies[0]`",
        ),
        (
            {"clusterIPs": ["10.96.0.9"]},
            'spec.clusterIPs: Invalid value: ["10.96.0.9"]: must be empty when `clusterIP` is not specified',
        ),
    ],
)
def test_what_contradicts_itself_is_refused(dual: Kinds, fields: JsonObject, problem: str) -> None:
    _, problems = dual.create("services", {"spec": {"ports": PORTS, **fields}})
    assert problems == [problem]


@pytest.mark.feature("ACC-30")
def test_a_service_gains_and_releases_its_second_family(dual: Kinds) -> None:
    service = made(dual)
    larger, problems = changed(dual, service, ipFamilyPolicy="RequireDualStack")
    assert problems == []
    assert shown(larger) == ("RequireDualStack", BOTH, BOTH_IPS)
    smaller, problems = changed(dual, larger, ipFamilyPolicy="SingleStack")
    assert problems == []
    assert shown(smaller) == ("SingleStack", ["IPv4"], ["10.96.0.2"])


def test_the_second_family_is_not_released_in_passing(dual: Kinds) -> None:
    service = made(dual, ipFamilyPolicy="PreferDualStack")
    _, problems = changed(dual, service, clusterIPs=BOTH_IPS[:1], ipFamilies=["IPv4"])
    assert problems == [
        'spec.ipFamilyPolicy: Invalid value: "PreferDualStack": '
        f"must be 'SingleStack' to release the {what}"
        for what in ("secondary cluster IP", "secondary IP family")
    ]


def test_the_primary_family_stays(dual: Kinds) -> None:
    service = made(dual)
    _, problems = changed(
        dual, service, clusterIP="fd00:96::2", clusterIPs=["fd00:96::2"], ipFamilies=["IPv6"]
    )
    assert problems == [
        'spec.clusterIPs[0]: Invalid value: ["fd00:96::2"]: may not change once set',
        'spec.ipFamilies[0]: Invalid value: ["IPv6"]: may not change once set',
    ]


def test_a_service_that_prefers_two_does_not_get_the_second_by_itself(kinds: Kinds) -> None:
    service = made(kinds, ipFamilyPolicy="PreferDualStack")
    kinds.addresses = Addresses(ips={"10.96.0.2"}, ranges="10.96.0.0/16,fd00:96::/112")
    same, problems = changed(kinds, service, sessionAffinity="ClientIP")
    assert (problems, shown(same)[1]) == ([], ["IPv4"])
    larger, problems = changed(kinds, service, ipFamilies=BOTH)
    assert (problems, shown(larger)) == ([], ("PreferDualStack", BOTH, BOTH_IPS))


def test_a_client_that_knows_one_address_keeps_both(dual: Kinds) -> None:
    service = made(dual, ipFamilyPolicy="PreferDualStack")
    same, problems = changed(dual, service, clusterIPs=None, ipFamilies=None, ipFamilyPolicy=None)
    assert (problems, shown(same)) == ([], shown(service))


def test_addresses_are_the_same_however_they_are_written() -> None:
    pool = AddressPool("10.96.0.0/16,fd00:96::/112")
    pool.reserve_ip("fd00:96::00a")
    with pytest.raises(AllocationError, match="already allocated"):
        pool.reserve_ip("fd00:96::a")
    pool.release_ip("fd00:0096::a")
    pool.reserve_ip("fd00:96::a")
    with pytest.raises(AllocationError, match="does not match the current range: fd00:96::/112"):
        pool.reserve_ip("fd01::1")
    assert pool.cidrs == ["10.96.0.0/16", "fd00:96::/112"]
