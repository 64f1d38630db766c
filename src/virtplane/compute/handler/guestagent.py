"""The guest agent's answers, in the form of the API."""

from __future__ import annotations

from typing import Any

from kubecore.json import JsonObject

_LISTED = 10
"""``guestosinfo`` names at most this many users and file systems."""


def os_info(info: dict[str, Any]) -> JsonObject:
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
    return {key: info[source] for key, source in names.items() if info.get(source)}


def users(info: dict[str, Any]) -> list[JsonObject]:
    """Everybody who is logged in; ``loginTime`` in seconds since 1970."""
    found = []
    for index in range(info.get("user.count", 0)):
        prefix = f"user.{index}"
        entry: JsonObject = {"userName": info.get(f"{prefix}.name", "")}
        if info.get(f"{prefix}.domain"):
            entry["domain"] = info[f"{prefix}.domain"]
        if f"{prefix}.login-time" in info:
            entry["loginTime"] = info[f"{prefix}.login-time"] / 1000
        found.append(entry)
    return found


def filesystems(info: dict[str, Any]) -> list[JsonObject]:
    """Every mounted file system; sizes in bytes."""
    found = []
    for index in range(info.get("fs.count", 0)):
        prefix = f"fs.{index}"
        entry: JsonObject = {
            "diskName": info.get(f"{prefix}.name", ""),
            "fileSystemType": info.get(f"{prefix}.fstype", ""),
            "mountPoint": info.get(f"{prefix}.mountpoint", ""),
            "totalBytes": info.get(f"{prefix}.total-bytes", 0),
            "usedBytes": info.get(f"{prefix}.used-bytes", 0),
        }
        disks = [
            {
                "busType": info.get(f"{prefix}.disk.{number}.bus", ""),
                "serial": info[f"{prefix}.disk.{number}.serial"],
            }
            for number in range(info.get(f"{prefix}.disk.count", 0))
            if f"{prefix}.disk.{number}.serial" in info
        ]
        if disks:
            entry["disk"] = disks
        found.append(entry)
    return found


def agent_info(info: dict[str, Any], version: str, commands: list[JsonObject]) -> JsonObject:
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
    if info.get("hostname"):
        answer["hostname"] = info["hostname"]
    if info.get("timezone.name"):
        answer["timezone"] = f"{info['timezone.name']}, {info.get('timezone.offset', 0)}"
    if users(info):
        answer["userList"] = users(info)[:_LISTED]
    return answer


def interfaces(found: dict[str, Any]) -> tuple[JsonObject, ...]:
    """libvirt's interface addresses by agent, without the loopback interface."""
    return tuple(
        {
            "name": name,
            "mac": details.get("hwaddr") or "",
            "addresses": [address["addr"] for address in details.get("addrs") or ()],
        }
        for name, details in sorted(found.items())
        if name != "lo"
    )
