"""Probes by the guest's agent that an annotation pauses."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.handler.agent.probes import AgentProbes
from virtplane.compute.handler.launchers.control import LauncherLink

_PING: dict[str, Any] = {"livenessProbe": {"guestAgentPing": {}}}


class Link:
    """A launcher that keeps what it is told; an older one refuses."""

    def __init__(self, *, is_old: bool = False) -> None:
        self.told: list[bool] = []
        self._is_old = is_old

    async def request(self, command: str, *, paused: bool) -> None:
        assert command == "pause-probes"
        self.told.append(paused)
        if self._is_old:
            raise ValueError("unknown command")


def _vmi(value: str | None, spec: dict[str, Any]) -> VirtualMachineInstance:
    annotations = {} if value is None else {"kubevirt.io/pause-guest-agent-probes": value}
    document = {"metadata": {"name": "vm", "annotations": annotations}, "spec": {"domain": {}, **spec}}
    return decode(VirtualMachineInstance, document)


async def _told(link: Link, *values: str | None, spec: dict[str, Any] = _PING) -> list[bool]:
    probes = AgentProbes("ns/vm")
    for value in values:
        await probes.follow(_vmi(value, spec), cast(LauncherLink, link))
    return link.told


async def test_the_launcher_is_told_of_each_change_and_of_what_was_missed() -> None:
    assert await _told(Link(), None, None, "true", "1", "no", None) == [False, True, False]
    assert await _told(Link(), "T") == [True]


async def test_guests_without_such_probes_cost_nothing() -> None:
    assert await _told(Link(), "true", spec={"readinessProbe": {"tcpSocket": {"port": 1}}}) == []


async def test_an_older_launcher_is_asked_once(caplog: pytest.LogCaptureFixture) -> None:
    assert await _told(Link(is_old=True), None, "true", "true") == [False, True]
    assert [record.message for record in caplog.records] == [
        "The guest's probes cannot be paused: its launcher is older. They can after its restart"
    ]
