"""The process ``kindling apiserver``: flags, event loop, signals."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import uvloop

from kubecore.large_requests import SWITCH_SECONDS
from kubecore.logs import set_up_logging

from .app import ApiServer
from .kinds.served import builtin_definitions
from .settings import Settings
from .storage.journal import STORAGE_REFUSED, StorageError

_GC_THRESHOLDS = (10_000, 20, 50)
"""Python's own would go through a big document's parts again and again while it is being decoded."""
_LOG = logging.getLogger(__name__)


def parser() -> argparse.ArgumentParser:
    """The command line of the API server: what a flag says is kept under the setting's name."""
    defaults = Settings()
    flags = argparse.ArgumentParser(prog="kindling apiserver", description="Serve the Kubernetes API")
    flags.add_argument(
        "--state-dir", type=Path, help="directory of the database and of keys made at first start"
    )
    flags.add_argument("--storage", type=Path, help="database file (default: STATE_DIR/apiserver.db)")
    flags.add_argument("--in-memory", action="store_true", help="keep nothing")
    flags.add_argument("--bind", default=defaults.bind, help="address to listen on")
    flags.add_argument("--port", type=int, default=defaults.port, help="port to listen on, 0 for any")
    flags.add_argument("--advertise", default="", help="address of the service default/kubernetes")
    for name in (
        "tls-cert",
        "tls-key",
        "client-ca",
        "front-proxy-ca",
        "proxy-client-cert",
        "proxy-client-key",
        "kubelet-client-cert",
        "kubelet-client-key",
        "kubelet-ca",
        "token-file",
        "audit-log",
    ):
        flags.add_argument(f"--{name}", type=Path)
    flags.add_argument(
        "--sa-key",
        dest="service_account_keys",
        type=Path,
        action="append",
        default=[],
        help="service account key, first signs",
    )
    flags.add_argument("--sa-issuer", dest="service_account_issuer", default=defaults.service_account_issuer)
    flags.add_argument("--api-audience", dest="api_audiences", action="append", default=[])
    flags.add_argument(
        "--request-timeout",
        dest="request_timeout_seconds",
        type=float,
        default=defaults.request_timeout_seconds,
        help="seconds that the body of a request may take to arrive",
    )
    flags.add_argument(
        "--service-cidr",
        default=defaults.service_cidr,
        help="service addresses: CIDR, or CIDR,CIDR for both families",
    )
    flags.add_argument(
        "--cluster-cidr", default="", help="what nodes, pods and services use: CIDR or CIDR,CIDR"
    )
    for name, metavar, text in (
        ("external-range", "CIDR", "where addresses of services from outside the cluster take effect"),
        ("reserved-image", "REPOSITORY", "an image for the accounts of --reserved-image-account alone"),
        ("reserved-image-account", "NAMESPACE/NAME", "a service account that may use reserved images"),
    ):
        kept_as = f"{name.replace('-', '_')}s"
        flags.add_argument(f"--{name}", dest=kept_as, action="append", default=[], metavar=metavar, help=text)
    flags.add_argument(
        "--compaction-interval",
        dest="compaction_interval_seconds",
        type=float,
        default=defaults.compaction_interval_seconds,
        metavar="SECONDS",
        help="history is kept for one to two times as long; 0: until it is too much (default: %(default)s)",
    )
    flags.add_argument("--log-format", choices=("json", "text"), default="json")
    flags.add_argument("-v", "--verbosity", type=int, default=2, help="0 to 9")
    return flags


def settings_of(arguments: argparse.Namespace) -> Settings:
    """Settings from parsed flags."""
    storage = arguments.storage
    if storage is None and arguments.state_dir is not None:
        storage = arguments.state_dir / "apiserver.db"
    if arguments.in_memory:
        storage = None
    elif storage is None:
        raise SystemExit("kindling apiserver: one of --state-dir, --storage and --in-memory is needed")
    known = {setting.name for setting in fields(Settings)}
    given = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in vars(arguments).items()
        if name in known
    }
    return Settings(**{**given, "storage": storage})


async def run(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT; a second signal ends the process at once.

    Raises StorageError, also when storage fails so that only a new start can tell what it holds.
    """
    server = ApiServer(settings, builtin_definitions())
    await server.start()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    sys.setswitchinterval(SWITCH_SECONDS)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if stopping.is_set():
            sys.exit(1)
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    lost = asyncio.create_task(server.store.lost.wait(), name="loss of storage")
    asked = asyncio.create_task(stopping.wait(), name="request to stop")
    try:
        await asyncio.wait((lost, asked), return_when=asyncio.FIRST_COMPLETED)
        if lost.done():
            raise StorageError(f"the disk failed: {server.store.problem}")
    finally:
        lost.cancel()
        asked.cancel()
        await server.stop()


def main(argv: Sequence[str] | None = None) -> int:
    """The entry point; returns the exit status."""
    arguments = parser().parse_args(argv)
    level = logging.DEBUG if arguments.verbosity >= 4 else logging.INFO
    set_up_logging("kindling-apiserver", level=level, form=arguments.log_format)
    try:
        uvloop.run(run(settings_of(arguments)))
    except StorageError as error:
        _LOG.error(STORAGE_REFUSED, extra={"err": str(error)})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
