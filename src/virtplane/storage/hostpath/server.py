"""The driver's gRPC server, on a socket that the kubelet and the sidecars connect to."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import msgspec

from kubecore.wire import Message, load_interface
from virtplane.storage.hostpath.configuration import BadConfiguration, Configuration
from virtplane.storage.hostpath.controller import Controller
from virtplane.storage.hostpath.failures import Code, CsiFailure, of_os_error
from virtplane.storage.hostpath.identity import Identity
from virtplane.storage.hostpath.images import CannotShare, ProgramFailed
from virtplane.storage.hostpath.node import Node
from virtplane.storage.hostpath.pool import Pool
from virtplane.storage.hostpath.recovery import remove_abandoned
from virtplane.storage.hostpath.reserve import despite_full, replenish
from virtplane.storage.hostpath.tidying import Tidying

_log = logging.getLogger(__name__)

_WORD = re.compile(r"(?<!^)(?=[A-Z])")
_THREADS = 8
"""Calls of one service that are worked on at the same time; they wait for disks and programs."""
_STOP_SECONDS = 10.0
_FREEING = frozenset({"DeleteVolume", "DeleteSnapshot"})
_LEAVING = frozenset({"NodeUnpublishVolume"})
"""Calls that leave something to tidy up."""
_NEEDED = _FREEING | {"NodeStageVolume", "NodeUnstageVolume", "NodePublishVolume", "NodeUnpublishVolume"}
"""Calls that must work in a full pool."""

Method = Callable[[Message], dict[str, Any]]


def socket_path(endpoint: str) -> Path:
    """The socket of ``unix://PATH``. A PATH without a leading slash is below the root, as upstream has it.

    Raises BadConfiguration.
    """
    scheme, separator, rest = endpoint.partition("://")
    path = rest if separator and scheme.lower() == "unix" else endpoint
    if (separator and scheme.lower() != "unix") or not path:
        raise BadConfiguration(f"invalid endpoint: {endpoint}")
    return Path("/") / path


class Server:
    """The driver's services. They answer from `start` to `stop`."""

    def __init__(self, configuration: Configuration, pools: dict[str, Pool]) -> None:
        self._path = socket_path(configuration.endpoint)
        self._pools = tuple(pools.values())
        self._tidying = Tidying(self._pools)
        self._threads: list[ThreadPoolExecutor] = []
        self._server = grpc.aio.server()
        interface = load_interface("csi-v1")
        services = {
            "Identity": Identity(configuration),
            "Controller": Controller(configuration, pools),
            "Node": Node(configuration, pools),
        }
        for name, service in services.items():
            # Each service its own: copying and removing what tenants have piled up may take many minutes,
            # and volumes are to be mounted meanwhile.
            threads = ThreadPoolExecutor(_THREADS, thread_name_prefix=f"csi-{name.lower()}")
            self._threads.append(threads)
            handlers = {}
            for method in interface.methods[name]:
                function = getattr(service, _WORD.sub("_", method).lower(), None)
                if function is not None:
                    response = interface.methods[name][method].response
                    handlers[method] = self._answering(method, response, function, threads)
            self._server.add_generic_rpc_handlers((interface.handler(name, handlers),))

    async def start(self) -> None:
        """Listen on the socket, in the place of one that an earlier driver left. Raises OSError."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.unlink(missing_ok=True)
        self._server.add_insecure_port(f"unix:{self._path}")
        await self._server.start()
        self._path.chmod(0o600)
        self._tidying.start()
        _log.info("listening on %s", self._path)

    async def stop(self) -> None:
        """Finish the calls in progress and close the socket."""
        await self._server.stop(_STOP_SECONDS)
        for threads in self._threads:
            threads.shutdown(wait=True)
        self._path.unlink(missing_ok=True)

    def _answering(
        self, method: str, response: type[Any], function: Method, threads: ThreadPoolExecutor
    ) -> Callable[[Message, Any], Awaitable[Message]]:
        async def answer(request: Message, context: Any) -> Message:
            loop = asyncio.get_running_loop()
            try:
                work = partial(call, self._pools, function, method, request)
                answer = await loop.run_in_executor(threads, work)
                if method in _LEAVING:
                    self._tidying.ask()
                return response(**answer)
            except CsiFailure as failure:
                level = logging.ERROR if failure.code is Code.INTERNAL else logging.INFO
                _log.log(level, "%s failed: %s", method, failure.message)
                await context.abort(getattr(grpc.StatusCode, failure.code.value), failure.message)
                raise  # abort has raised already

        return answer


def call(pools: Iterable[Pool], function: Method, method: str, request: Message) -> dict[str, Any]:
    """Call a method; everything that can go wrong becomes a CsiFailure."""
    try:
        for pool in pools:
            pool.prepare()  # the claim of one may have been mounted since
        if method not in _NEEDED:
            return function(request)
        answer = despite_full(pools, lambda: function(request))
        if method in _FREEING:
            remove_abandoned(pools)
            replenish(pools)
        return answer
    except OSError as error:
        raise of_os_error(error, method) from error
    except (ProgramFailed, msgspec.DecodeError) as error:
        raise CsiFailure(Code.INTERNAL, f"{method}: {error}") from error
    except CannotShare as error:
        raise CsiFailure(
            Code.FAILED_PRECONDITION, f"the pool's file system cannot share blocks of a file in use: {error}"
        ) from error
