"""Where the worker programs start: they can be told to end before they are loaded, which takes a second."""

from __future__ import annotations

import importlib

from virtplane import first_process


def importer() -> int:
    """``virt-cdi-importer``."""
    return _start("importer.main")


def upload_server() -> int:
    """``virt-cdi-uploadserver``."""
    return _start("uploadserver.main")


def cloner() -> int:
    """``virt-cdi-cloner``."""
    return _start("cloner.main")


def size_detection() -> int:
    """``cdi-image-size-detection``."""
    return _start("importer.sizedetection")


def poller() -> int:
    """``cdi-source-update-poller``."""
    return _start("poller.main")


def _start(module: str) -> int:
    first_process.end_when_told()
    code: int = importlib.import_module(f"virtplane.storage.cdi.{module}").main()
    return code
