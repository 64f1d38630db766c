"""Loop devices for block volumes that are files."""

from __future__ import annotations

import asyncio
from pathlib import Path


class LoopFailure(Exception):
    """losetup failed."""


async def attach(file: Path) -> Path:
    """The loop device of `file`, attached now unless it is already. Raises LoopFailure."""
    existing = await _run("losetup", "--noheadings", "--output", "NAME", "--associated", str(file))
    if existing:
        return Path(existing.splitlines()[0].strip())
    return Path(await _run("losetup", "--find", "--show", str(file)))


async def detach(device: Path) -> None:
    """Let go of a loop device; used ones go when their last user does."""
    await _run("losetup", "--detach", str(device))


async def _run(*command: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    stdout, stderr = await process.communicate()
    if process.returncode != 0:
        raise LoopFailure(stderr.decode().strip() or " ".join(command))
    return stdout.decode().strip()
