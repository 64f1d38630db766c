"""Routes of the machine to the addresses that services have from outside.

Rules translate a packet only once it has somewhere to go: without a route for the address, the machine's own
programs get "network is unreachable". Where the machine has a route, whichever it is, it stays the one: the
rules are met on the way to it. The routes lead to the cluster's bridge, and disappear with it. They have a
protocol of their own, so that those of addresses that were given back are found after a restart.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Collection

import orjson

_PROTOCOL = 107
"""Of our routes; no routing daemon of /etc/iproute2/rt_protos uses it."""
_SHOWN = 500


class RoutesRefused(Exception):
    """The routes could not be read or changed; the text is that of ``ip``."""


class ExternalRoutes:
    """The routes to external addresses over `bridge`; without a bridge there are none."""

    def __init__(self, bridge: str) -> None:
        self._bridge = bridge
        self._kept: set[str] | None = None
        """The addresses of the last call, all of which have a route."""

    async def keep(self, addresses: Collection[str]) -> None:
        """Have routes to these addresses and to no others. Raises RoutesRefused."""
        if not self._bridge:
            return
        wanted = set(addresses)
        if wanted == self._kept:
            return
        self._kept = None
        made = await self._found()
        missing = [each for each in sorted(wanted - made) if not await _is_routed(each)]
        commands = [self._command("replace", each) for each in missing]
        commands += [self._command("del", each) for each in sorted(made - wanted)]
        if commands:
            # Without -force the first failure would keep the rest from being done.
            await _ip(["-force", "-batch", "-"], "".join(commands))
        self._kept = wanted

    async def _found(self) -> set[str]:
        found: set[str] = set()
        for family in ("-4", "-6"):
            show = ["-j", family, "route", "show", "dev", self._bridge, "proto", str(_PROTOCOL)]
            found |= {str(item["dst"]) for item in orjson.loads(await _ip(show, "") or b"[]")}
        return found

    def _command(self, verb: str, address: str) -> str:
        prefix = 128 if ":" in address else 32
        return f"route {verb} {address}/{prefix} dev {self._bridge} proto {_PROTOCOL}\n"


async def _is_routed(address: str) -> bool:
    try:
        await _ip(["route", "get", address], "")
    except RoutesRefused:
        return False
    return True


async def _ip(arguments: list[str], given: str) -> bytes:
    # A temporary file: a pipe breaks where ip ends without reading it.
    with tempfile.TemporaryFile() as content:
        content.write(given.encode())
        content.seek(0)
        process = await asyncio.create_subprocess_exec(
            "ip",
            *arguments,
            stdin=content,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, problem = await process.communicate()
    if process.returncode:
        raise RoutesRefused(problem.decode(errors="replace").strip()[:_SHOWN])
    return output
