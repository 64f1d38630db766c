"""Waiting for what tells nobody."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

from kubecore.client import Client
from kubecore.objects import meta
from kubecore.resources import ResourceType

SECONDS = 30.0


def _never(_error: Exception) -> bool:
    return False


async def until(
    check: Callable[[], Any], seconds: float = SECONDS, *, not_yet: Callable[[Exception], bool] = _never
) -> Any:
    """What `check` returns, or what its coroutine does, once that is true; an error that is `not_yet` one
    counts as false. Raises TimeoutError.
    """
    async with asyncio.timeout(seconds):
        while True:
            try:
                found = check()
                if inspect.isawaitable(found):
                    found = await found
                if found:
                    return found
            except Exception as error:
                if not not_yet(error):
                    raise
            await asyncio.sleep(0.01)


async def until_condition(client: Client, resource: ResourceType, name: str, condition: str) -> None:
    """Return once a condition of an object outside namespaces is true."""

    async def holds() -> bool:
        return meta.is_condition_true(await client.get(resource, name), condition)

    await until(holds)


async def until_listening(host: str, port: int) -> None:
    """Return once somebody accepts connections there."""

    async def is_listening() -> bool:
        _, writer = await asyncio.open_connection(host, port)
        writer.close()
        await writer.wait_closed()
        return True

    await until(is_listening, not_yet=lambda error: isinstance(error, OSError))


def blocking_until(what: str, check: Callable[[], Any], seconds: float = SECONDS) -> Any:
    """The same as `until` for tests without an event loop. Raises TimeoutError that names `what`."""
    deadline = time.monotonic() + seconds
    while not (found := check()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds} s")
        time.sleep(0.02)
    return found
