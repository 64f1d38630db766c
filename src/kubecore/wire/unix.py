"""gRPC over a unix socket, and calls that fail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from kubecore.wire.failures import rpc_text

_OPTIONS = (("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1))


class CallFailed(Exception):
    """A call of a gRPC service failed. `code` is Python's name of it (``NOT_FOUND``)."""

    def __init__(self, code: str, details: str) -> None:
        super().__init__(rpc_text(code, details))
        self.code = code
        self.details = details


class ConnectionClosed(CallFailed):
    """The channel was closed on this side before there was a response."""

    def __init__(self) -> None:
        super().__init__("UNAVAILABLE", "the connection was closed")


def channel_to(socket: str) -> grpc.aio.Channel:
    """A channel to the unix socket at the path `socket`; it connects when it is first used, and again."""
    return grpc.aio.insecure_channel(f"unix:{socket}", options=_OPTIONS)


async def call(method: Callable[..., Awaitable[Any]], request: Any, timeout_seconds: float) -> Any:
    """The response of `method`.

    Raises CallFailed; ConnectionClosed where the channel was closed on this side meanwhile.
    """
    try:
        return await method(request, timeout=timeout_seconds)
    except grpc.aio.AioRpcError as error:
        raise CallFailed(error.code().name, error.details() or "") from error
    except grpc.aio.UsageError as error:
        raise ConnectionClosed from error
    except asyncio.CancelledError as error:
        # Closing the channel cancels its calls; that must not look like a cancellation of this task.
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise ConnectionClosed from error
