"""Loading rulesets into the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import orjson

from kindling.network import tables
from kindling.network.tables import Existing, Table
from kubecore import programs

_SHOWN = 500


class RulesRefused(Exception):
    """nft failed to load or to list a ruleset; the text is nft's."""


async def load(ruleset: str, namespace: Path | None = None) -> None:
    """Load a ruleset atomically, in the network namespace at `namespace` or here.

    Raises RulesRefused.
    """
    await _run(["-f", "-"], ruleset.encode(), namespace)


async def chains(family: str) -> list[tuple[str, str]]:
    """(table, chain) of every chain of a family in this namespace. Raises RulesRefused."""
    listed = orjson.loads(await _run(["-j", "list", "chains", family], b"", None))["nftables"]
    found = [item["chain"] for item in listed if "chain" in item]
    return [(item["table"], item["name"]) for item in found]


async def existing(family: str, table: str, namespace: Path | None = None) -> Existing:
    """The names in a table; none if there is no such table. Raises RulesRefused."""
    listed = orjson.loads(await _run(["-j", "list", "tables", family], b"", namespace))["nftables"]
    if not any(item["table"]["name"] == table for item in listed if "table" in item):
        return Existing()
    # Terse: without the elements.
    answer = await _run(["-t", "-j", "list", "table", family, table], b"", namespace)
    items = orjson.loads(answer)["nftables"]

    def names(kind: str) -> tuple[str, ...]:
        return tuple(item[kind]["name"] for item in items if kind in item)

    return Existing(names("chain"), names("set"), names("map"))


class Keeper:
    """Keeps one table of one namespace as it is wanted: loads what differs from what it loaded before.

    The first time, and after a failure, it replaces what is there, whoever loaded it, in one transaction.
    """

    def __init__(self, namespace: Path | None = None) -> None:
        self._namespace = namespace
        self._loaded: Table | None = None

    async def load(self, wanted: Table, more: str = "") -> bool:
        """Make the table what is wanted, with `more` commands of the same transaction; returns whether
        anything had to be loaded. Raises RulesRefused; the table is then as it was.
        """
        before, self._loaded = self._loaded, None
        if before is None:
            found = await existing(wanted.family, wanted.name, self._namespace)
            commands = tables.replacement(found, wanted)
        else:
            commands = tables.changes(before, wanted)
        if commands or more:
            await load(commands + more, self._namespace)
        self._loaded = wanted
        return bool(commands)


async def _run(arguments: Sequence[str], content: bytes, namespace: Path | None) -> bytes:
    prefix = ["nsenter", f"--net={namespace}"] if namespace else []
    # If this is cancelled, the kernel has all of a transaction or nothing.
    ended = await programs.run([*prefix, "nft", *arguments], content)
    if ended.code != 0:
        raise RulesRefused(ended.problem.decode(errors="replace").strip()[:_SHOWN])
    return ended.output
