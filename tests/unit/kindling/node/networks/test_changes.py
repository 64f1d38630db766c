"""What is attached and detached, and how interfaces are named."""

from __future__ import annotations

from typing import Any

import pytest

from kindling.node.networks import changes, network_status
from kindling.node.networks.problems import NetworkProblem
from kindling.node.networks.records import Attachment, PodName
from kindling.node.networks.selection import NetworkSelection


def wanted(name: str, interface: str = "", **more: Any) -> NetworkSelection:
    return NetworkSelection(name=name, namespace="ns", interface=interface, **more)


def attached(name: str, interface: str, asked: str = "", result: Any = ()) -> Attachment:
    pod = PodName(namespace="ns", name="p", uid="u")
    return Attachment(
        sandbox="s",
        interface=interface,
        wanted=wanted(name, asked),
        pod=pod,
        namespace_path="/run/netns/x",
        name=name,
        plugins=(),
        result={} if result == () else result,
    )


def names(found: changes.Changes) -> tuple[list[str], list[str], list[str]]:
    return (
        [item.interface for item in found.remove],
        [item.interface for item in found.add],
        list(found.order),
    )


def test_interfaces_are_numbered_by_the_list() -> None:
    found = changes.compute([wanted("a"), wanted("b", "data"), wanted("a")], [])
    assert names(found) == ([], ["net1", "data", "net3"], ["net1", "data", "net3"])


def test_a_name_that_another_asks_for_is_left_to_it() -> None:
    assert names(changes.compute([wanted("a"), wanted("b", "net1")], []))[1] == ["net2", "net1"]
    with pytest.raises(NetworkProblem, match="two networks of the pod want the interface name data"):
        changes.compute([wanted("a", "data"), wanted("b", "data")], [])


def test_what_stays_keeps_its_interface_wherever_it_is_listed_now() -> None:
    before = [attached("a", "net1"), attached("b", "net2")]
    found = changes.compute([wanted("c"), wanted("b", mac="02:00:00:00:00:01")], before)
    assert names(found) == (["net1"], ["net1"], ["net1", "net2"])


def test_an_interrupted_attachment_is_undone_and_made_anew() -> None:
    found = changes.compute([wanted("a")], [attached("a", "net1", result=None)])
    assert names(found) == (["net1"], ["net1"], ["net1"])


def test_what_was_made_last_goes_first() -> None:
    assert names(changes.compute([], [attached("a", "net1"), attached("b", "net2")]))[0] == ["net2", "net1"]


def test_a_status_has_an_entry_for_each_interface_of_the_pod() -> None:
    inside = {"sandbox": "/run/netns/x"}
    result = {
        "interfaces": [
            {"name": "br1", "mac": "a"},
            {"name": "net1", "mac": "b", **inside},
            {"name": "net2", "mac": "c", "mtu": 1400, **inside},
        ],
        "ips": [{"interface": 1, "address": "10.1.1.2/24"}, {"address": "fd00::2/64"}],
        "routes": [{"dst": "0.0.0.0/0", "gw": "10.1.1.1"}, {"dst": "10.2.0.0/16", "gw": "10.1.1.9"}],
        "dns": {"nameservers": ["10.1.1.3"], "search": []},
    }
    shared = {"name": "ns/lan", "dns": {"nameservers": ["10.1.1.3"]}, "gateway": ["10.1.1.1"]}
    assert network_status.entries("ns/lan", result) == [
        {**shared, "interface": "net1", "ips": ["10.1.1.2"], "mac": "b"},
        {**shared, "interface": "net2", "ips": ["fd00::2"], "mac": "c", "mtu": 1400},
    ]
    only = {"interfaces": [{"name": "net1", "mac": "b", **inside}], "ips": [{"address": "10.1.1.2/24"}]}
    assert network_status.entries("ns/lan", only) == [
        {"name": "ns/lan", "interface": "net1", "ips": ["10.1.1.2"], "mac": "b", "dns": {}}
    ]


def test_the_status_is_indented_entry_by_entry() -> None:
    entries: list[dict[str, Any]] = [{"name": "a", "ips": ["1"], "dns": {}}, {"name": "b", "dns": {}}]
    assert network_status.text(entries) == (
        '[{\n    "name": "a",\n    "ips": [\n        "1"\n    ],\n    "dns": {}\n},'
        '{\n    "name": "b",\n    "dns": {}\n}]'
    )
    assert network_status.text([]) == "[]"
