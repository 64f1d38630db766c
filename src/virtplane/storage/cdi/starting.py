"""Where the worker programs start: they can be told to end before they are loaded, which takes a second.

They end at once, too: somebody waits for the volume.
"""

from __future__ import annotations

import importlib
from typing import Never

from virtplane import first_process


def importer() -> Never:
    """``virt-cdi-importer``."""
    _start("importer.main")


def upload_server() -> Never:
    """``virt-cdi-uploadserver``."""
    _start("uploadserver.main")


def cloner() -> Never:
    """``virt-cdi-cloner``."""
    _start("cloner.main")


def size_detection() -> Never:
    """``cdi-image-size-detection``."""
    _start("importer.sizedetection")


def poller() -> Never:
    """``cdi-source-update-poller``."""
    _start("poller.main")


def _start(module: str) -> Never:
    first_process.end_when_told()
    first_process.end(importlib.import_module(f"virtplane.storage.cdi.{module}").main())
