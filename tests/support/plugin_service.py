"""The services of plugins, served from this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
from tests.support.grpc_sockets import served

from virtplane.compute.handler.hooks import messages


@contextmanager
def domain_service(socket: Path, answer: Callable[[Any], bytes]) -> Iterator[None]:
    """A sidecar at `socket`; `answer` turns a request into the changed domain."""
    plugins = messages.plugins()

    def mutate(request: Any, context: Any) -> Any:
        try:
            return plugins.message("MutateDomainResponse", {"domain": answer(request)})
        except ValueError as error:
            context.abort(grpc.StatusCode.INTERNAL, str(error))

    socket.parent.mkdir(parents=True, exist_ok=True)
    with served(socket, [plugins.handler("DomainHookService", {"MutateDomain": mutate})]):
        yield


@contextmanager
def node_service(socket: Path, told: Callable[[Any], None]) -> Iterator[None]:
    """A service of node hooks at `socket`; `told` gets each request and may raise ValueError."""
    plugins = messages.plugins()

    def execute(request: Any, context: Any) -> Any:
        try:
            told(request)
        except ValueError as error:
            context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        return plugins.message("ExecuteNodeHookResponse")

    socket.parent.mkdir(parents=True, exist_ok=True)
    with served(socket, [plugins.handler("NodeHookService", {"ExecuteNodeHook": execute})]):
        yield
