"""What a running guest is given and what is taken from it, decided from its domain and its instance."""

from __future__ import annotations

from typing import Any

import pytest

from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.domain.interfaces import PluggedInterface
from virtplane.compute.handler.network.cards import Differences, differences
from virtplane.compute.podlinks import Wire, wires


def wanted(**states: str) -> list[Wire]:
    """The pod network, and the secondary networks with these states."""
    interfaces: list[dict[str, Any]] = [{"name": "default", "masquerade": {}}]
    interfaces += [
        {"name": name, "bridge": {}, **({"state": state} if state else {})} for name, state in states.items()
    ]
    networks: list[dict[str, Any]] = [{"name": "default", "pod": {}}]
    networks += [{"name": name, "multus": {"networkName": name}} for name in states]
    spec = {"domain": {"devices": {"interfaces": interfaces}}, "networks": networks}
    return wires(decode(VirtualMachineInstance, {"spec": spec}))


def plugged(*names: str, down: tuple[str, ...] = ()) -> dict[str, PluggedInterface]:
    return {name: PluggedInterface(name, name not in down) for name in (*names, *down)}


def named(found: tuple[Wire, ...]) -> list[str]:
    return [wire.interface.name for wire in found]


def found(states: dict[str, str], domain: dict[str, PluggedInterface], *cleared: str) -> dict[str, list[str]]:
    result = differences(wanted(**states), domain, frozenset(cleared))
    parts = ("plug", "unplug", "clear", "switch")
    return {part: names for part in parts if (names := named(getattr(result, part)))}


@pytest.mark.feature("VML-38")
def test_interfaces_come_go_and_are_cleared_away_once_the_guest_let_them_go() -> None:
    assert found({"blue": ""}, plugged("default")) == {"plug": ["blue"]}
    assert found({"blue": ""}, plugged("default", "blue")) == {}
    assert found({"blue": "absent"}, plugged("default", "blue")) == {"unplug": ["blue"]}
    assert found({"blue": "absent"}, plugged("default")) == {"clear": ["blue"]}
    assert found({"blue": "absent"}, plugged("default"), "blue") == {}


def test_links_are_switched_where_they_differ() -> None:
    assert found({"blue": "down"}, plugged("default", "blue")) == {"switch": ["blue"]}
    assert found({"blue": "up"}, plugged("default", down=("blue",))) == {"switch": ["blue"]}
    assert found({"blue": "down"}, plugged("default", down=("blue",))) == {}
    assert found({}, plugged(down=("default",))) == {"switch": ["default"]}


def test_the_interface_of_the_pod_network_neither_comes_nor_goes() -> None:
    assert found({}, {}) == {}
    assert not Differences()
