"""The guest agent's answers, in the form of the API.

Neither agent nor daemon is trusted: types of values are checked, lengths and numbers are bounded. What is
malformed is left out.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kubecore.json import JsonObject

_LISTED = 10
"""``guestosinfo`` names at most this many users and file systems."""

MOST = 1000
"""Users, file systems, commands and interfaces beyond this number are left out."""

TEXT = 256
"""Characters of one text."""

_MAC = re.compile(r"[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}){5,19}", re.ASCII)


def os_info(info: Mapping[str, Any]) -> JsonObject:
    """``guestOSInfo`` of the status, from libvirt's flat guest information."""
    names = {
        "name": "os.name",
        "id": "os.id",
        "version": "os.version",
        "versionId": "os.version-id",
        "prettyName": "os.pretty-name",
        "kernelRelease": "os.kernel-release",
        "kernelVersion": "os.kernel-version",
        "machine": "os.machine",
    }
    return {key: _text(info, source) for key, source in names.items() if _text(info, source)}


def users(info: Mapping[str, Any]) -> list[JsonObject]:
    """Everybody who is logged in; ``loginTime`` in seconds since 1970."""
    found = []
    for prefix in _prefixes(info, "user"):
        entry: JsonObject = {"userName": _text(info, f"{prefix}.name")}
        if _text(info, f"{prefix}.domain"):
            entry["domain"] = _text(info, f"{prefix}.domain")
        if f"{prefix}.login-time" in info:
            entry["loginTime"] = _number(info, f"{prefix}.login-time") / 1000
        found.append(entry)
    return found


def filesystems(info: Mapping[str, Any]) -> list[JsonObject]:
    """Every mounted file system; sizes in bytes."""
    found = []
    for prefix in _prefixes(info, "fs"):
        entry: JsonObject = {
            "diskName": _text(info, f"{prefix}.name"),
            "fileSystemType": _text(info, f"{prefix}.fstype"),
            "mountPoint": _text(info, f"{prefix}.mountpoint"),
            "totalBytes": _number(info, f"{prefix}.total-bytes"),
            "usedBytes": _number(info, f"{prefix}.used-bytes"),
        }
        disks = [
            {"busType": _text(info, f"{disk}.bus"), "serial": _text(info, f"{disk}.serial")}
            for disk in _prefixes(info, f"{prefix}.disk")
            if f"{disk}.serial" in info
        ]
        if disks:
            entry["disk"] = disks
        found.append(entry)
    return found


def agent_info(info: Mapping[str, Any], version: str, commands: list[JsonObject]) -> JsonObject:
    """The answer of the ``guestosinfo`` subresource."""
    answer: JsonObject = {
        "apiVersion": "subresources.kubevirt.io/v1",
        "kind": "VirtualMachineInstanceGuestAgentInfo",
        "guestAgentVersion": version,
        "os": os_info(info),
        "fsInfo": {"disks": filesystems(info)[:_LISTED]},
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
    """What the agent says of itself to ``guest-info``; nothing where that makes no sense."""
    try:
        said = json.loads(answer)
    except (ValueError, RecursionError):
        return "", []
    said = said.get("return") if isinstance(said, dict) else None
    if not isinstance(said, dict):
        return "", []
    listed = said.get("supported_commands")
    commands = [
        {"name": _text(each, "name"), **({"enabled": True} if each.get("enabled") is True else {})}
        for each in _objects(listed if isinstance(listed, list) else ())
    ]
    return _text(said, "version"), commands


def interfaces(found: Mapping[str, Any]) -> tuple[JsonObject, ...]:
    """libvirt's interface addresses by agent, without the loopback interface."""
    named = sorted((name, details) for name, details in found.items() if isinstance(details, dict))
    return tuple(
        {
            "name": name[:TEXT],
            "mac": details["hwaddr"] if _is_mac(details.get("hwaddr")) else "",
            "addresses": list(_addresses(details.get("addrs"))),
        }
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
    """``kind.0``, ``kind.1`` and so on, as many as there are said to be, but not for ever."""
    return (f"{kind}.{index}" for index in range(min(_number(info, f"{kind}.count"), MOST)))


def _text(info: Mapping[str, Any], key: str) -> str:
    value = info.get(key)
    return value[:TEXT] if isinstance(value, str) else ""


def _number(info: Mapping[str, Any], key: str) -> int:
    value = info.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
