"""Running programs of the machine to their end."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import PIPE


async def run_program(*command: str, seconds: float) -> tuple[int, str, str]:
    """Exit code, output and error output. The program is killed at the timeout, and when this task is
    cancelled.

    Raises OSError when it cannot be started, TimeoutError (an OSError) when it takes longer.
    """
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
    try:
        async with asyncio.timeout(seconds):
            output, problem = await process.communicate()
    except TimeoutError as error:
        raise TimeoutError(f"{' '.join(command)} has not ended within {seconds:g} s") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode or 0, _text(output), _text(problem)


def _text(output: bytes) -> str:
    return output.decode("utf-8", "replace").strip()
