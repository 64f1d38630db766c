"""``virtplane hostpath-csi``: the hostpath driver and what drives it, in one process of a node.

This is how the compact layout runs them: one interpreter and one set of libraries instead of two. In code
they stay apart (`hostpath`, `csi`), and they speak over the driver's socket as in two containers.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence

from kubecore.logs import set_up_logging
from virtplane.process import run_until_stopped
from virtplane.storage.csi.command import run_parts
from virtplane.storage.csi.options import Options
from virtplane.storage.csi.options import parse as parse_parts
from virtplane.storage.hostpath import main as driver
from virtplane.storage.hostpath.configuration import BadConfiguration, Configuration

_log = logging.getLogger(__name__)

_SEPARATOR = "--"


def parse(argv: Sequence[str]) -> tuple[Options, argparse.Namespace]:
    """Read ``PARTS FLAGS -- DRIVER'S FLAGS``; exits with status 2 where it makes no sense."""
    place = list(argv).index(_SEPARATOR) if _SEPARATOR in argv else len(argv)
    return parse_parts(argv[:place]), driver.parse(argv[place + 1 :])


def main(argv: Sequence[str]) -> int:
    """Run until stopped; gives the exit status."""
    parts, options = parse(argv)
    set_up_logging("hostpath-provisioner")
    try:
        settings = driver.prepare_process(options)
    except BadConfiguration as error:
        _log.error("failed to initialize driver: %s", error)
        return driver.EXIT_FAILED
    return run_until_stopped(_run(parts, settings, options.metrics_port))


async def _run(parts: Options, settings: Configuration, metrics_port: int) -> None:
    """The parts end before the driver that they drive."""
    async with driver.serving(settings, metrics_port):
        await run_parts(parts)
