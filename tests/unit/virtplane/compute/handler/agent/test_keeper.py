"""How often guest agents are asked, whatever they answer."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any, cast

import pytest

from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.handler.agent.credentials import Outcome
from virtplane.compute.handler.agent.keeper import AgentKeeper
from virtplane.compute.handler.libvirtd.agentanswers import AgentFigures, FileSystem
from virtplane.compute.handler.libvirtd.connections import Connections

pytestmark = pytest.mark.looptime

VMI = decode(VirtualMachineInstance, {"metadata": {"name": "vm", "namespace": "ns", "uid": "u"}})


class Agent:
    """The libvirt of a guest whose agent answers at once, each time with another host."""

    agent_connected = True

    def __init__(self) -> None:
        self.link = None
        self.asked: list[float] = []
        self._numbers = itertools.count()

    @property
    def hypervisor(self) -> Agent:
        return self

    async def freeze_state(self, _name: str) -> str:
        return "thawed"

    async def guest_info(self, _name: str) -> dict[str, Any]:
        self.asked.append(asyncio.get_running_loop().time())
        return {"os.name": f"system {next(self._numbers)}"}

    async def guest_interfaces(self, _name: str) -> dict[str, Any]:
        return {}

    async def agent_about(self, _name: str) -> str:
        return '{"return": {"version": "8", "supported_commands": [{"name": "a", "enabled": true}]}}'


async def test_an_agent_that_says_something_else_each_time_is_not_asked_without_end() -> None:
    agent, changed = Agent(), asyncio.Event()
    keeper = AgentKeeper("ns_vm", "ns/vm", cast(Connections, agent), changed.set)
    begun = asyncio.get_running_loop().time()
    while asyncio.get_running_loop().time() - begun < 60:
        keeper.refresh(VMI, is_running=True)
        changed.clear()
        await asyncio.wait(
            [asyncio.create_task(changed.wait()), asyncio.create_task(asyncio.sleep(1))],
            return_when="FIRST_COMPLETED",
        )
    assert agent.asked[0] == pytest.approx(begun, abs=0.1)
    assert 6 <= len(agent.asked) <= 15
    assert keeper.facts.os_info.name == f"system {len(agent.asked) - 1}"
    await keeper.close()


class Measuring(Agent):
    """An agent that measures the load, as those of QEMU 10 do, and always has the same system."""

    async def guest_info(self, _name: str) -> dict[str, Any]:
        self.asked.append(asyncio.get_running_loop().time())
        sizes = {"fs.0.total-bytes": 100, "fs.0.used-bytes": len(self.asked)}
        return {"fs.count": 1, "fs.0.name": "vda1", "fs.0.mountpoint": "/", "fs.0.fstype": "ext4", **sizes}

    async def agent_about(self, _name: str) -> str:
        return '{"return": {"supported_commands": [{"name": "guest-get-load", "enabled": true}]}}'

    async def agent_command(self, _name: str, command: str, _seconds: int) -> str:
        assert json.loads(command) == {"execute": "guest-get-load"}
        return '{"return": {"load1m": 0.25, "load5m": 1, "load15m": 2.5}}'


async def test_what_the_agent_measures_is_kept_and_is_no_news() -> None:
    agent, news = Measuring(), list[None]()
    keeper = AgentKeeper("ns_vm", "ns/vm", cast(Connections, agent), lambda: news.append(None))
    for used in (1, 2):
        keeper.refresh(VMI, is_running=True)
        await asyncio.sleep(10)
        assert keeper.figures.file_systems == (FileSystem("vda1", "ext4", "/", 100, used),)
        assert keeper.figures.load == {"load1m": 0.25, "load5m": 1, "load15m": 2.5}
    assert len(news) == 1
    agent.agent_connected = False
    keeper.refresh(VMI, is_running=True)
    assert keeper.figures == AgentFigures()
    await keeper.close()


async def test_an_agent_that_comes_back_is_asked_at_once() -> None:
    agent = Agent()
    keeper = AgentKeeper("ns_vm", "ns/vm", cast(Connections, agent), lambda: None)
    for expected in (1, 2):
        agent.agent_connected = True
        keeper.refresh(VMI, is_running=True)
        await asyncio.sleep(0.1)
        assert len(agent.asked) == expected
        agent.agent_connected = False
        keeper.refresh(VMI, is_running=True)
    await keeper.close()


async def test_a_missing_agent_is_looked_for_again_when_that_is_to_be_told() -> None:
    secret = {"secret": {"secretName": "keys"}}
    key = {"sshPublicKey": {"source": secret, "propagationMethod": {"qemuGuestAgent": {"users": ["root"]}}}}
    vmi = decode(
        VirtualMachineInstance,
        {"metadata": {"name": "vm", "namespace": "ns", "uid": "u"}, "spec": {"accessCredentials": [key]}},
    )
    agent, changed = Agent(), asyncio.Event()
    agent.agent_connected = False
    keeper = AgentKeeper("ns_vm", "ns/vm", cast(Connections, agent), changed.set)
    begun = asyncio.get_running_loop().time()
    keeper.refresh(vmi, is_running=True)
    keeper.refresh(vmi, is_running=True)
    await changed.wait()
    assert asyncio.get_running_loop().time() - begun == pytest.approx(15)
    keeper.refresh(vmi, is_running=True)
    assert keeper.credentials.outcome == Outcome(False, "Guest agent is offline")
    await keeper.close()
