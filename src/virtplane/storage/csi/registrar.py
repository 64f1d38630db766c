"""The kubelet learns of the driver (the node-driver-registrar)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio

from kubecore.wire import Message, load_interface

logger = logging.getLogger(__name__)

_VERSIONS = ("1.0.0",)
_MOST_ERROR = 1000


class NotRegistered(Exception):
    """The kubelet refused the driver; the text is the kubelet's."""


class Registrar:
    """Serves the registration socket of one driver."""

    def __init__(self, driver: str, endpoint: str, directory: Path) -> None:
        """`endpoint` is the driver's socket as the kubelet sees it, `directory` the kubelet's for plugins."""
        self._driver = driver
        self._endpoint = endpoint
        self.socket = directory / f"{driver}-reg.sock"
        self.is_registered = False
        self._refused = asyncio.Event()
        self._reason = ""

    async def run(self) -> None:
        """Serve until cancelled. Raises NotRegistered, OSError."""
        async with self._serve():
            await self._refused.wait()
        raise NotRegistered(f"the kubelet does not accept CSI driver {self._driver}: {self._reason}")

    @asynccontextmanager
    async def _serve(self) -> AsyncIterator[None]:
        interface = load_interface("pluginregistration-v1")

        async def info(_request: Message, _context: object) -> Message:
            values = {
                "type": "CSIPlugin",
                "name": self._driver,
                "endpoint": self._endpoint,
                "supported_versions": _VERSIONS,
            }
            return interface.message("PluginInfo", values)

        async def notified(request: Message, _context: object) -> Message:
            if request.plugin_registered:
                logger.info("the kubelet has registered CSI driver %s", self._driver)
                self.is_registered = True
            else:
                self._reason = request.error[:_MOST_ERROR]
                self.is_registered = False
                self._refused.set()
            return interface.message("RegistrationStatusResponse")

        _remove_socket(self.socket)
        server = grpc.aio.server()
        methods = {"GetInfo": info, "NotifyRegistrationStatus": notified}
        server.add_generic_rpc_handlers((interface.handler("Registration", methods),))
        # The kubelet runs as root, and nobody else is to speak in its name.
        before = os.umask(0o077)
        try:
            server.add_insecure_port(f"unix:{self.socket}")
        finally:
            os.umask(before)
        await server.start()
        try:
            yield
        finally:
            # The kubelet takes the socket's absence for the driver's.
            _remove_socket(self.socket)
            await server.stop(1.0)


def _remove_socket(path: Path) -> None:
    """Remove the socket of an earlier process, and nothing else. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise FileExistsError(f"{path} is there and is no socket")
        path.unlink()
