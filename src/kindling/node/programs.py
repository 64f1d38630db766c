"""Running programs of the machine to their end."""

from __future__ import annotations

import asyncio

from kubecore import programs


async def run_program(*command: str, seconds: float) -> tuple[int, str, str]:
    """Exit code, output and error output. The program is killed at the timeout, and when this task is
    cancelled.

    Raises OSError when it cannot be started, TimeoutError (an OSError) when it takes longer.
    """
    try:
        async with asyncio.timeout(seconds):
            ended = await programs.run(command)
    except TimeoutError as error:
        raise TimeoutError(f"{' '.join(command)} has not ended within {seconds:g} s") from error
    return ended.code, _text(ended.output), _text(ended.problem)


def _text(output: bytes) -> str:
    return output.decode("utf-8", "replace").strip()
