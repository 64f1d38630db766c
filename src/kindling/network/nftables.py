"""Loading rulesets into the kernel."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

import orjson

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


async def _run(arguments: Sequence[str], content: bytes, namespace: Path | None) -> bytes:
    prefix = ["nsenter", f"--net={namespace}"] if namespace else []
    # A temporary file: nft opens its input by path, and that does not work when standard input is a socket,
    # as it is for children of the event loop.
    with tempfile.TemporaryFile() as given:
        given.write(content)
        given.seek(0)
        process = await asyncio.create_subprocess_exec(
            *prefix,
            "nft",
            *arguments,
            stdin=given,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        stdout, stderr = await process.communicate()
    if process.returncode != 0:
        raise RulesRefused(stderr.decode(errors="replace").strip()[:_SHOWN])
    return stdout
