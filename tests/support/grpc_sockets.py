"""Services of gRPC at a Unix socket, served from this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc


@contextmanager
def served(socket: Path, handlers: Sequence[Any]) -> Iterator[None]:
    """Serve `handlers` at `socket` while the context lasts."""
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers(tuple(handlers))
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    try:
        yield
    finally:
        server.stop(0).wait(5)
