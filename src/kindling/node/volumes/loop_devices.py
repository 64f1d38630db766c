"""Loop devices for block volumes that are files."""

from __future__ import annotations

from pathlib import Path

from kindling.node.programs import run_program

_SECONDS = 30.0


class LoopFailure(OSError):
    """losetup failed."""


async def attach(file: Path) -> Path:
    """The loop device of `file`, attached now unless it is already. Raises LoopFailure."""
    existing = await devices_of(file)
    if existing:
        return existing[0]
    return Path(await _run("losetup", "--find", "--show", str(file)))


async def devices_of(file: Path) -> list[Path]:
    """The loop devices of `file`. Raises LoopFailure."""
    listed = await _run("losetup", "--noheadings", "--output", "NAME", "--associated", str(file))
    return [Path(line.strip()) for line in listed.splitlines()]


async def detach(device: Path) -> None:
    """Detach a loop device; the kernel detaches one in use when its last user closes it."""
    await _run("losetup", "--detach", str(device))


async def _run(*command: str) -> str:
    code, output, problem = await run_program(*command, seconds=_SECONDS)
    if code != 0:
        raise LoopFailure(problem or " ".join(command))
    return output
