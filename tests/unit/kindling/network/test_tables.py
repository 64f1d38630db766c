"""Tables as values: what is written when one becomes another; ranges."""

from __future__ import annotations

import ipaddress
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.namespaces import Namespace, namespaces

from kindling.network import nftables, ranges, tables
from kindling.network.tables import Collection, Table

HOOK = "type filter hook forward priority 0; policy accept;"
NUMBERS = "type inet_service : verdict;"


def table(ports: dict[str, str], **chains: tuple[str, ...]) -> Table:
    chains = {"forward": ("tcp dport vmap @ports",), **chains}
    return Table("inet", "t", {"forward": HOOK}, chains, {"ports": Collection("map", NUMBERS, ports)})


ONE = table({"80": "goto a"}, a=("drop",))
TWO = table({"80": "goto b", "81": "goto a"}, a=("drop",), b=("accept",))


def test_equal_tables_need_nothing() -> None:
    assert tables.changes(ONE, ONE) == ""


def test_only_what_changed_is_written() -> None:
    assert tables.changes(ONE, TWO).splitlines() == [
        "add chain inet t b",
        "delete element inet t ports { 80 }",
        "table inet t {",
        "chain b {",
        "accept",
        "}",
        "}",
        "add element inet t ports { 80 : goto b, 81 : goto a }",
    ]


def test_another_declaration_is_no_change() -> None:
    other = Table("inet", "t", {}, {}, {"ports": Collection("set", "type inet_service;")})
    with pytest.raises(ValueError, match="inet t"):
        tables.changes(ONE, other)


def numbers(*texts: str) -> list[ranges.Range]:
    return [ranges.of_network(ipaddress.ip_network(text)) for text in texts]


def test_blocks_without_their_exceptions() -> None:
    (whole,) = numbers("10.0.0.0/24")
    left = ranges.without(whole, numbers("10.0.0.0/30", "10.0.0.8/32", "10.0.0.128/25", "192.0.2.0/24"))
    assert [ranges.text(item, 4) for item in left] == ["10.0.0.4-10.0.0.7", "10.0.0.9-10.0.0.127"]
    assert ranges.without(whole, numbers("10.0.0.0/16")) == []
    (six,) = numbers("2001:db8::/127")
    assert [ranges.text(item, 6) for item in ranges.without(six, numbers("2001:db8::1/128"))] == [
        "2001:db8::"
    ]
    assert ranges.joined([(5, 7), (1, 2), (3, 4), (6, 6)]) == [(1, 7)]


@pytest.mark.parametrize("text", ["", "10.0.0", "fe80::1%eth0", "10.0.0.1; drop"])
def test_what_is_no_address_gets_into_no_rule(text: str) -> None:
    assert ranges.address(text) is None


# At work.


@pytest.fixture
def place() -> Iterator[Namespace]:
    with namespaces("t") as (made,):
        yield made


needs_nft = pytest.mark.skipif(os.geteuid() != 0 or shutil.which("nft") is None, reason="needs root and nft")


@pytest.mark.host
@needs_nft
async def test_the_kernel_has_what_was_wanted_last(place: Namespace) -> None:
    here = Path(f"/run/netns/{place.name}")

    async def listed(wanted: Table) -> list[str]:
        """What the kernel shows of a table that is loaded into an empty namespace."""
        place.run("nft", "flush", "ruleset")
        await nftables.Keeper(here).load(wanted)
        return shown()

    def shown() -> list[str]:
        return sorted(place.run("nft", "list", "ruleset").splitlines())

    expected = {id(wanted): await listed(wanted) for wanted in (ONE, TWO)}
    keeper = nftables.Keeper(here)
    for wanted in (ONE, TWO, ONE, TWO):
        assert await keeper.load(wanted)
        assert shown() == expected[id(wanted)]
    assert not await keeper.load(TWO)
    successor = nftables.Keeper(here)
    await successor.load(ONE)
    assert shown() == expected[id(ONE)], "whatever an earlier process loaded is replaced"


@pytest.mark.host
@needs_nft
async def test_a_refused_change_leaves_all_as_it_was(place: Namespace) -> None:
    here = Path(f"/run/netns/{place.name}")
    keeper = nftables.Keeper(here)
    await keeper.load(ONE)
    before = place.run("nft", "list", "ruleset")
    with pytest.raises(nftables.RulesRefused):
        await keeper.load(table({"82": "goto nowhere"}, a=("accept",)))
    assert place.run("nft", "list", "ruleset") == before
    assert await keeper.load(TWO), "it goes on from what is there"
