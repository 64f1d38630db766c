"""``virtplane csi``: the program."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Sequence
from dataclasses import replace

import uvloop

from kubecore.client import Client
from kubecore.client.config import ClientConfig, in_cluster, is_in_cluster
from kubecore.client.kubeconfig import load_kubeconfig
from kubecore.logs import set_up_logging
from kubecore.runtime import CannotRun
from virtplane.storage.csi.options import CONTROLLERS, Options, parse
from virtplane.storage.csi.process import Process, Surroundings

logger = logging.getLogger(__name__)

_EXIT_FAILED = 1


def main(argv: Sequence[str]) -> int:
    """Run until stopped; gives the exit status."""
    options = parse(argv)
    set_up_logging("csi")
    try:
        uvloop.run(_run(options))
    except BaseExceptionGroup as group:
        refusals, others = group.split(CannotRun)
        for refusal in _singles(refusals) if refusals else ():
            logger.error("%s", refusal)
        if others:
            logger.error("a part failed, so this process ends", exc_info=others)
        return _EXIT_FAILED
    except CannotRun as refusal:
        logger.error("%s", refusal)
        return _EXIT_FAILED
    except Exception:
        logger.exception("this process ends")
        return _EXIT_FAILED
    return 0


def _singles(group: BaseExceptionGroup[CannotRun]) -> list[CannotRun]:
    found: list[CannotRun] = []
    for error in group.exceptions:
        found += _singles(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found


async def _run(options: Options) -> None:
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    client = None
    if set(options.parts) & set(CONTROLLERS):
        client = Client(_credentials(options.any("kubeconfig")))
    with contextlib.suppress(asyncio.CancelledError):
        try:
            await Process(options, Surroundings.of_environment(), client).run()
        finally:
            if client is not None:
                await client.close()


def _credentials(kubeconfig: str) -> ClientConfig:
    """A kubeconfig's, or the pod's. Raises ConfigError."""
    config = load_kubeconfig(kubeconfig or None) if kubeconfig or not is_in_cluster() else in_cluster()
    return replace(config, user_agent="virtplane-csi", field_manager="virtplane-csi")
