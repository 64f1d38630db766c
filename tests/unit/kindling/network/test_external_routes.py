"""Routes to external addresses: the machine's own programs reach them, and they go when addresses do."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator

import pytest
from tests.support.namespaces import Namespace, namespaces

from kindling.network.external_routes import ExternalRoutes, RoutesRefused

pytestmark = [pytest.mark.host, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Namespace]:
    with namespaces("machine") as (made,):
        made.run("ip", "link", "add", "k-1", "type", "bridge")
        made.run("ip", "addr", "add", "10.64.0.1/24", "dev", "k-1")
        made.run("ip", "link", "set", "k-1", "up")
        run = asyncio.create_subprocess_exec

        def inside(*command: str, **pipes: int) -> object:
            return run("ip", "netns", "exec", made.name, *command, **pipes)  # type: ignore[arg-type]

        monkeypatch.setattr(asyncio, "create_subprocess_exec", inside)
        yield made


def routes(machine: Namespace) -> list[str]:
    found = json.loads(machine.run("ip", "-j", "route", "show", "dev", "k-1"))
    return sorted(item["dst"] for item in found if item["dst"] != "10.64.0.0/24")


async def test_routes_come_and_go_with_addresses(machine: Namespace) -> None:
    kept = ExternalRoutes("k-1")
    await kept.keep({"192.0.2.1", "192.0.2.2"})
    assert routes(machine) == ["192.0.2.1", "192.0.2.2"]
    await kept.keep({"192.0.2.2", "192.0.2.3"})
    assert routes(machine) == ["192.0.2.2", "192.0.2.3"]
    machine.run("ip", "route", "add", "198.51.100.0/24", "dev", "k-1")
    await ExternalRoutes("k-1").keep({"192.0.2.3"})
    assert routes(machine) == ["192.0.2.3", "198.51.100.0/24"], "after a restart; others' routes stay"


async def test_where_the_machine_has_a_route_it_stays(machine: Namespace) -> None:
    """An address of its own network, say, or of its gateway."""
    machine.run("ip", "link", "add", "lan", "type", "bridge")
    machine.run("ip", "addr", "add", "192.0.2.2/24", "dev", "lan")
    machine.run("ip", "link", "set", "lan", "up")
    await ExternalRoutes("k-1").keep({"192.0.2.1", "198.51.100.1"})
    assert routes(machine) == ["198.51.100.1"]


async def test_a_refusal_is_tried_again(machine: Namespace) -> None:
    kept = ExternalRoutes("k-2")
    with pytest.raises(RoutesRefused, match="k-2"):
        await kept.keep({"192.0.2.1"})
    machine.run("ip", "link", "set", "k-1", "down")
    machine.run("ip", "link", "set", "k-1", "name", "k-2", "up")
    await kept.keep({"192.0.2.1"})
    assert "192.0.2.1" in machine.run("ip", "route", "show", "dev", "k-2")
