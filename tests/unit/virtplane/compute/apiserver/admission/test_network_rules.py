"""Networks and cards that users may ask for, what they get when they do not say, and refusals."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.virtplane.compute.apiserver.admission.answers import INTERFACE, causes, defaulted, instance

from kubecore.json import JsonObject


@pytest.mark.feature("NET-01")
async def test_a_machine_is_on_the_pod_network_unless_it_says_otherwise() -> None:
    spec = await defaulted(instance())
    assert spec["networks"] == [{"name": "default", "pod": {}}]
    assert [card["name"] for card in spec["domain"]["devices"]["interfaces"]] == ["default"]


@pytest.mark.feature("NET-01")
async def test_nothing_is_added_to_networks_that_were_chosen_or_switched_off() -> None:
    second: JsonObject = {
        "devices": {"interfaces": [{"name": "blue", "bridge": {}}]},
        "networks": [{"name": "blue", "multus": {"networkName": "blue"}}],
    }
    assert (await defaulted(instance(**second)))["networks"] == second["networks"]
    off = await defaulted(instance(devices={"autoattachPodInterface": False}))
    assert "networks" not in off and "interfaces" not in off["domain"]["devices"]


def _card(**card: Any) -> JsonObject:
    return instance(
        devices={"interfaces": [{"name": "default", "masquerade": {}, **card}]},
        networks=[{"name": "default", "pod": {}}],
    )


@pytest.mark.feature("NET-09")
@pytest.mark.parametrize("model", ["virtio", "e1000", "pcnet", "rtl8139"])
async def test_cards_have_one_of_the_known_models(model: str) -> None:
    assert await causes(_card(model=model)) == []


@pytest.mark.feature("NET-09")
async def test_an_unknown_model_is_refused() -> None:
    text = f"interface {INTERFACE}.name uses model 3c509 that is not supported."
    assert await causes(_card(model="3c509")) == [(f"{INTERFACE}.model", text)]


@pytest.mark.parametrize("binding", ["masquerade", "bridge", "sriov"])
async def test_a_card_has_exactly_one_binding(binding: str) -> None:
    source = {"multus": {"networkName": "n"}} if binding == "sriov" else {"pod": {}}
    card = {"name": "default", binding: {}}
    network = [{"name": "default", **source}]
    assert await causes(instance(devices={"interfaces": [card]}, networks=network)) == []
    text = "logical default interface must have exactly one binding method or binding plugin"
    none = instance(devices={"interfaces": [{"name": "default"}]}, networks=network)
    assert await causes(none) == [(INTERFACE, text)]
    two = instance(devices={"interfaces": [{**card, "passtBinding": {}}]}, networks=network)
    assert (INTERFACE, text) in await causes(two)


@pytest.mark.parametrize(
    ("port", "text"),
    [
        ({"port": 0}, "Port field is mandatory."),
        ({"port": 65536}, "Port field must be in range 0 < x < 65536."),
        ({"port": -1}, "Port field must be in range 0 < x < 65536."),
        ({"port": 80, "protocol": "SCTP"}, "Unknown protocol, only TCP or UDP allowed"),
    ],
)
async def test_forwarded_ports_are_ports(port: JsonObject, text: str) -> None:
    assert [message for _, message in await causes(_card(ports=[port]))] == [text]


@pytest.mark.parametrize("port", [1, 65535])
async def test_the_ends_of_the_range_of_ports_are_ports(port: int) -> None:
    assert await causes(_card(ports=[{"port": port}])) == []


@pytest.mark.feature("NET-15")
async def test_cards_and_networks_belong_together_by_name() -> None:
    cards = {"interfaces": [{"name": "red", "bridge": {}}]}
    networks = [{"name": "blue", "multus": {"networkName": "b"}}]
    assert await causes(instance(devices=cards, networks=networks)) == [
        ("spec.networks[0].name", "spec.networks[0].name 'blue' not found."),
        (f"{INTERFACE}.name", f"{INTERFACE}.name 'red' not found."),
    ]
    named = [{"name": "red", "multus": {"networkName": "b"}}]
    assert await causes(instance(devices=cards, networks=named)) == []


@pytest.mark.parametrize(
    ("address", "problem"),
    [("de:00:00:00:00:de", ""), ("nonsense", "malformed"), ("de:ad:be:ef:00:00:00:00", "too long")],
)
@pytest.mark.feature("NET-11")
async def test_a_mac_address_is_one_of_ethernet(address: str, problem: str) -> None:
    found = [message for _, message in await causes(_card(macAddress=address))]
    expected = f"interface {INTERFACE}.name has {problem} MAC address ({address})."
    assert found == ([expected] if problem else [])


@pytest.mark.parametrize(
    ("server", "is_refused"),
    [("0127.0.0.3", False), ("127.0.0.3", False), ("::1", True), ("127.0.0.300", True)],
)
async def test_servers_of_the_time_may_have_leading_zeros(server: str, is_refused: bool) -> None:
    found = [message for _, message in await causes(_card(dhcpOptions={"ntpServers": [server]}))]
    assert found == (["NTP servers must be a list of valid IPv4 addresses."] if is_refused else [])


async def test_name_servers_may_have_leading_zeros() -> None:
    servers = ["01.1.1.1", "2001:0db8::0001"]
    assert await causes(instance(dnsPolicy="None", dnsConfig={"nameservers": servers})) == []
    refused = await causes(instance(dnsPolicy="None", dnsConfig={"nameservers": ["01.1.1"]}))
    assert refused == [("nameservers", "must be valid IP address: 01.1.1")]
