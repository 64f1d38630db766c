"""Where the worker programs start: they can be told to end before they are loaded, which takes a second.

They end at once, too: somebody waits for the volume.
"""

from __future__ import annotations

import importlib
from typing import Never

from kubecore.aiohttp_loading import load_aiohttp
from virtplane import first_process


def importer() -> Never:
    """``virt-cdi-importer``."""
    _start("importer.main", uses_web=True)


def upload_server() -> Never:
    """``virt-cdi-uploadserver``."""
    _start("uploadserver.main", uses_web=True)


def cloner() -> Never:
    """``virt-cdi-cloner``."""
    _start("cloner.main", uses_web=True)


def size_detection() -> Never:
    """``cdi-image-size-detection``."""
    _start("importer.sizedetection")


def poller() -> Never:
    """``cdi-source-update-poller``."""
    _start("poller.main")


def _start(module: str, *, uses_web: bool = False) -> Never:
    first_process.end_when_told()
    if uses_web:
        load_aiohttp()
    first_process.end(importlib.import_module(f"virtplane.storage.cdi.{module}").main())
