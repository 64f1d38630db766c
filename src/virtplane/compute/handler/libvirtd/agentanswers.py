"""Converts the guest agent's answers to the form of the API.

Neither the agent nor the daemon is trusted: types are checked, lengths and counts are limited, and malformed
values are left out.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kubecore.json import JsonObject
from kubecore.objects.structs import encode
from virtplane.api.kubevirt_v1.vmi_status import VirtualMachineInstanceGuestOSInfo

_LISTED = 10
"""``guestosinfo`` names at most this many users and file systems."""

MOST = 1000
"""Users, file systems, commands and interfaces beyond this number are left out."""

TEXT = 256
"""Characters of one text."""

ANSWER = 1 << 17
"""Characters of an answer that is read here; QEMU's agent lists its commands in 6000."""

MOST_MEASURED = 64
"""File systems of one guest of which metrics tell."""

FROZEN = "frozen"
THAWED = "thawed"

LOADS = ("load1m", "load5m", "load15m")
GET_LOAD = "guest-get-load"
_MOST_LOAD = 1e9
"""What is more, infinite, or no number was not measured."""

_MAC = re.compile(r"[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}){5,19}", re.ASCII)


@dataclass(frozen=True, slots=True)
class AgentInterface:
    """A network interface as the guest reports it; `mac` is empty if it has none."""

    name: str
    mac: str
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FileSystem:
    """A mounted file system; sizes in bytes."""

    disk: str
    kind: str
    mount_point: str
    total: int
    used: int


@dataclass(frozen=True, slots=True)
class AgentFigures:
    """What the agent has measured last."""

    file_systems: tuple[FileSystem, ...] = ()
    load: Mapping[str, float] = field(default_factory=dict)
    """The average number of processes that run or wait for disks, by the agent's names of times."""


def os_info(info: Mapping[str, Any]) -> VirtualMachineInstanceGuestOSInfo:
    """``guestOSInfo`` of the status, from libvirt's flat guest information."""
    return VirtualMachineInstanceGuestOSInfo(
        name=_text(info, "os.name") or None,
        id=_text(info, "os.id") or None,
        version=_text(info, "os.version") or None,
        version_id=_text(info, "os.version-id") or None,
        pretty_name=_text(info, "os.pretty-name") or None,
        kernel_release=_text(info, "os.kernel-release") or None,
        kernel_version=_text(info, "os.kernel-version") or None,
        machine=_text(info, "os.machine") or None,
    )


def users(info: Mapping[str, Any]) -> list[JsonObject]:
    """The users who are logged in; ``loginTime`` in seconds since 1970."""
    found = []
    for prefix in _prefixes(info, "user"):
        entry: JsonObject = {"userName": _text(info, f"{prefix}.name")}
        if _text(info, f"{prefix}.domain"):
            entry["domain"] = _text(info, f"{prefix}.domain")
        if f"{prefix}.login-time" in info:
            entry["loginTime"] = _number(info, f"{prefix}.login-time") / 1000
        found.append(entry)
    return found


def filesystems(answer: str) -> list[JsonObject]:
    """The mounted file systems, sizes in bytes, from the agent's answer to ``guest-get-fsinfo``.

    libvirt's guest information does not tell the disks' buses.
    """
    return [
        {
            "diskName": _text(each, "name"),
            "fileSystemType": _text(each, "type"),
            "mountPoint": _text(each, "mountpoint"),
            "totalBytes": _number(each, "total-bytes"),
            "usedBytes": _number(each, "used-bytes"),
            **_disks(each.get("disk")),
        }
        for each in _said(answer)
    ]


def _disks(listed: object) -> JsonObject:
    """``disk`` of a file system: what it is on, if that is known."""
    disks: list[JsonObject] = []
    for each in list(_objects(listed if isinstance(listed, list) else ()))[:_LISTED]:
        serial = {"serial": _text(each, "serial")} if _text(each, "serial") else {}
        disks.append({**serial, "busType": _text(each, "bus-type")})
    return {"disk": disks} if disks else {}


def measured_file_systems(info: Mapping[str, Any]) -> tuple[FileSystem, ...]:
    """The first `MOST_MEASURED` file systems whose sizes are told, none of them twice."""
    found: dict[tuple[str, str, str], FileSystem] = {}
    for prefix in _prefixes(info, "fs"):
        if f"{prefix}.total-bytes" not in info or len(found) == MOST_MEASURED:
            continue
        name, kind, place = (_text(info, f"{prefix}.{key}") for key in ("name", "fstype", "mountpoint"))
        total, used = (_number(info, f"{prefix}.{key}") for key in ("total-bytes", "used-bytes"))
        found.setdefault((name, kind, place), FileSystem(name, kind, place, total, used))
    return tuple(found.values())


def load(answer: str) -> dict[str, float]:
    """What the agent answers to ``guest-get-load``; empty where that makes no sense."""
    said = _answer(answer).get("return")
    numbers = {name: said.get(name) for name in LOADS} if isinstance(said, dict) else {}
    return {
        name: float(value)
        for name, value in numbers.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _MOST_LOAD
    }


def agent_info(
    info: Mapping[str, Any], mounted: list[JsonObject], version: str, commands: list[JsonObject]
) -> JsonObject:
    """The answer of the ``guestosinfo`` subresource."""
    answer: JsonObject = {
        "apiVersion": "subresources.kubevirt.io/v1",
        "kind": "VirtualMachineInstanceGuestAgentInfo",
        "guestAgentVersion": version,
        "os": encode(os_info(info)),
        "fsInfo": {"disks": mounted[:_LISTED]},
    }
    if commands:
        answer["supportedCommands"] = commands
    if _text(info, "hostname"):
        answer["hostname"] = _text(info, "hostname")
    if _text(info, "timezone.name"):
        answer["timezone"] = f"{_text(info, 'timezone.name')}, {_number(info, 'timezone.offset')}"
    if users(info):
        answer["userList"] = users(info)[:_LISTED]
    return answer


def version_and_commands(answer: str) -> tuple[str, list[JsonObject]]:
    """Version and commands of the agent, from its answer to ``guest-info``; empty if that is malformed."""
    said = _answer(answer).get("return")
    if not isinstance(said, dict):
        return "", []
    listed = said.get("supported_commands")
    commands = [
        {"name": _text(each, "name"), **({"enabled": True} if each.get("enabled") is True else {})}
        for each in _objects(listed if isinstance(listed, list) else ())
    ]
    return _text(said, "version"), commands


def freeze_state(answer: str) -> str:
    """What the agent answers to ``guest-fsfreeze-status``; empty where that makes no sense."""
    state = _text(_answer(answer), "return")
    return state if state in (FROZEN, THAWED) else ""


def _said(answer: str) -> Iterator[JsonObject]:
    """The objects of a list that an agent has answered with."""
    listed = _answer(answer).get("return")
    return _objects(listed if isinstance(listed, list) else ())


def _answer(text: str) -> JsonObject:
    """The object that an agent has answered with; an empty one where it is none, or longer than any is."""
    try:
        said = json.loads(text) if len(text) <= ANSWER else None
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def interfaces(found: Mapping[str, Any]) -> tuple[AgentInterface, ...]:
    """libvirt's interface addresses by agent, without the loopback interface."""
    named = sorted((name, details) for name, details in found.items() if isinstance(details, dict))
    return tuple(
        AgentInterface(
            name[:TEXT],
            details["hwaddr"] if _is_mac(details.get("hwaddr")) else "",
            tuple(_addresses(details.get("addrs"))),
        )
        for name, details in named[:MOST]
        if name != "lo"
    )


def _addresses(listed: object) -> Iterator[str]:
    for each in list(_objects(listed if isinstance(listed, list) else ()))[:_LISTED]:
        try:
            yield str(ipaddress.ip_address(_text(each, "addr")))
        except ValueError:
            continue


def _is_mac(value: object) -> bool:
    return isinstance(value, str) and _MAC.fullmatch(value) is not None


def _objects(listed: Iterable[object]) -> Iterator[JsonObject]:
    return (each for each in list(listed)[:MOST] if isinstance(each, dict))


def _prefixes(info: Mapping[str, Any], kind: str) -> Iterator[str]:
    """``kind.0``, ``kind.1`` and so on, up to the reported count, but not beyond a limit."""
    return (f"{kind}.{index}" for index in range(min(_number(info, f"{kind}.count"), MOST)))


def _text(info: Mapping[str, Any], key: str) -> str:
    value = info.get(key)
    return value[:TEXT] if isinstance(value, str) else ""


def _number(info: Mapping[str, Any], key: str) -> int:
    value = info.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
