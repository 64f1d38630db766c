"""Addresses that are read differently by different programs are refused; unusual forms are warned about."""

from __future__ import annotations

import pytest
from tests.unit.kindling.apiserver.kinds.conftest import Kinds, make, told

from kindling.apiserver.kinds.machinery import checks
from kindling.apiserver.kinds.machinery.address_forms import address_warnings, cidr_warnings
from kubecore.json import JsonObject
from kubecore.objects.fields import FieldPath

_AT = FieldPath("ip")


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("10.0.0.1", ""),
        ("2001:DB8::1", ""),
        ("010.0.0.1", "must not have leading 0s"),
        ("::ffff:10.0.0.1", "must not be an IPv4-mapped IPv6 address"),
        ("10.0.0", "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
        ("fe80::1%eth0", "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
    ],
)
def test_an_address_has_one_reading(value: str, problem: str) -> None:
    wanted = [f'ip: Invalid value: "{value}": {problem}'] if problem else []
    assert told(checks.address(_AT, value)) == wanted


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("10.0.0.0/8", ""),
        ("2001:DB8::/32", ""),
        ("10.0.0.0/08", "must not have leading 0s in IP or prefix length"),
        ("10.0.0.1/8", "must not have bits set beyond the prefix length"),
        ("::ffff:10.0.0.0/104", "must not have an IPv4-mapped IPv6 address"),
        ("10.0.0.0/33", "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"),
    ],
)
def test_a_block_of_addresses_has_one_reading(value: str, problem: str) -> None:
    wanted = [f'ip: Invalid value: "{value}": {problem}'] if problem else []
    assert told(checks.cidr(_AT, value)) == wanted


def test_only_unusual_forms_are_warned_about() -> None:
    assert address_warnings(_AT, "10.0.0.1") == address_warnings(_AT, "2001:db8::1") == []
    assert cidr_warnings(_AT, "10.0.0.0/8") == cidr_warnings(_AT, "2001:db8::/32") == []
    assert cidr_warnings(_AT, "2001:DB8::/32") == [
        'ip: IPv6 CIDR value "2001:DB8::/32" should be in RFC 5952 canonical format ("2001:db8::/32")'
    ]


@pytest.mark.parametrize(
    ("plural", "document", "at"),
    [
        ("services", {"spec": {"externalIPs": ["FD00::1"]}}, "spec.externalIPs[0]"),
        ("services", {"spec": {"clusterIP": "x", "clusterIPs": ["FD00::1"]}}, "spec.clusterIPs[0]"),
        ("pods", {"spec": {"hostAliases": [{"ip": "FD00::1"}]}}, "spec.hostAliases[0].ip"),
        ("pods", {"spec": {"dnsConfig": {"nameservers": ["FD00::1"]}}}, "spec.dnsConfig.nameservers[0]"),
        ("endpoints", {"subsets": [{"addresses": [{"ip": "FD00::1"}]}]}, "subsets[0].addresses[0].ip"),
        ("endpointslices", {"endpoints": [{"addresses": ["FD00::1"]}]}, "endpoints[0].addresses[0]"),
    ],
)
def test_kinds_warn_about_their_addresses(kinds: Kinds, plural: str, document: JsonObject, at: str) -> None:
    strategy = kinds.definition(plural).strategy
    text = f'{at}: IPv6 address "FD00::1" should be in RFC 5952 canonical format ("fd00::1")'
    assert text in strategy.warnings(kinds.context(plural), kinds.read(plural, document), None)


@pytest.mark.parametrize(
    ("plural", "status", "at"),
    [
        ("pods", {"podIPs": [{"ip": "FD00::1"}]}, "status.podIPs[0].ip"),
        ("services", {"loadBalancer": {"ingress": [{"ip": "FD00::1"}]}}, "status.loadBalancer.ingress[0]"),
        ("ingresses", {"loadBalancer": {"ingress": [{"ip": "FD00::1"}]}}, "status.loadBalancer.ingress[0]"),
    ],
)
def test_statuses_warn_about_their_addresses(kinds: Kinds, plural: str, status: JsonObject, at: str) -> None:
    strategy = kinds.part(plural, "status")
    text = f'{at}: IPv6 address "FD00::1" should be in RFC 5952 canonical format ("fd00::1")'
    assert strategy.warnings(kinds.context(plural), {"status": status}, {"status": {}}) == [text]


def test_endpoints_that_stay_are_not_judged_again(kinds: Kinds) -> None:
    slices = {"addressType": "IPv4", "endpoints": [{"addresses": ["10.1.2.3"]}]}
    _, problems = kinds.update(
        "endpointslices", make(kinds, "endpointslices", slices), {"addressType": "IPv6"}
    )
    assert problems == ['addressType: Invalid value: "IPv6": field is immutable']
    old = {**make(kinds, "endpoints", {}), "subsets": [{"addresses": [{"ip": "010.1.2.3"}]}]}
    assert kinds.update("endpoints", old, {})[1] == []
    changed = {"subsets": [{"addresses": [{"ip": "010.1.2.4"}]}]}
    assert kinds.update("endpoints", old, changed)[1] == [
        'subsets[0].addresses[0].ip: Invalid value: "010.1.2.4": must not have leading 0s'
    ]
