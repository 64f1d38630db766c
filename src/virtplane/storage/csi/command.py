"""``virtplane csi``: the program."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any

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
    return status_of(run_parts(options))


def status_of(work: Coroutine[Any, Any, None]) -> int:
    """Run `work` until it ends, or until SIGTERM or SIGINT, and log what ended it; gives the exit status."""
    try:
        uvloop.run(_until_signalled(work))
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


async def _until_signalled(work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await work


async def run_parts(options: Options) -> None:
    """Run the parts that `options` name until cancelled. Raises CannotRun, and whatever ends a part."""
    client = None
    if set(options.parts) & set(CONTROLLERS):
        client = Client(_credentials(options.any("kubeconfig")))
    try:
        await Process(options, Surroundings.of_environment(), client).run()
    finally:
        if client is not None:
            await client.close()


def _credentials(kubeconfig: str) -> ClientConfig:
    """A kubeconfig's, or the pod's. Raises ConfigError."""
    config = load_kubeconfig(kubeconfig or None) if kubeconfig or not is_in_cluster() else in_cluster()
    return replace(config, user_agent="virtplane-csi", field_manager="virtplane-csi")
