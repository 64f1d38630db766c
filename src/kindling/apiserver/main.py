"""The process ``kindling apiserver``: flags, event loop, signals."""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import uvloop

from .app import ApiServer
from .kinds.served import builtin_definitions
from .registry.large_requests import SWITCH_SECONDS
from .settings import Settings
from .storage.journal import STORAGE_REFUSED, StorageError

_GC_THRESHOLDS = (10_000, 20, 50)
"""Python's own would go through a big document's parts again and again while it is being decoded."""
_LOG = logging.getLogger(__name__)
_STANDARD_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """One JSON object per record; what was passed as ``extra`` becomes members."""

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        document = {
            "ts": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        extra = {key: value for key, value in vars(record).items() if key not in _STANDARD_ATTRIBUTES}
        if record.exc_info:
            document["err"] = self.formatException(record.exc_info)
        return json.dumps({**document, **extra}, default=str)


def parser() -> argparse.ArgumentParser:
    """The command line of the API server."""
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
        "--sa-key", type=Path, action="append", default=[], help="service account key, first signs"
    )
    flags.add_argument("--sa-issuer", default=defaults.service_account_issuer)
    flags.add_argument("--api-audience", action="append", default=[])
    flags.add_argument(
        "--request-timeout",
        type=float,
        default=defaults.request_timeout_seconds,
        help="seconds that the body of a request may take to arrive",
    )
    flags.add_argument("--service-cidr", default=defaults.service_cidr)
    flags.add_argument("--cluster-cidr", default="", help="what nodes, pods and services use")
    for name, metavar, text in (
        ("external-range", "CIDR", "where addresses of services from outside the cluster take effect"),
        ("reserved-image", "REPOSITORY", "an image for the accounts of --reserved-image-account alone"),
        ("reserved-image-account", "NAMESPACE/NAME", "a service account that may use reserved images"),
    ):
        flags.add_argument(f"--{name}", action="append", default=[], metavar=metavar, help=text)
    flags.add_argument(
        "--compaction-interval",
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
    return Settings(
        storage=storage,
        bind=arguments.bind,
        port=arguments.port,
        advertise=arguments.advertise,
        tls_cert=arguments.tls_cert,
        tls_key=arguments.tls_key,
        client_ca=arguments.client_ca,
        front_proxy_ca=arguments.front_proxy_ca,
        proxy_client_cert=arguments.proxy_client_cert,
        proxy_client_key=arguments.proxy_client_key,
        kubelet_client_cert=arguments.kubelet_client_cert,
        kubelet_client_key=arguments.kubelet_client_key,
        kubelet_ca=arguments.kubelet_ca,
        service_account_keys=tuple(arguments.sa_key),
        service_account_issuer=arguments.sa_issuer,
        api_audiences=tuple(arguments.api_audience),
        service_cidr=arguments.service_cidr,
        cluster_cidr=arguments.cluster_cidr,
        external_ranges=tuple(arguments.external_range),
        reserved_images=tuple(arguments.reserved_image),
        reserved_image_accounts=tuple(arguments.reserved_image_account),
        request_timeout_seconds=arguments.request_timeout,
        token_file=arguments.token_file,
        audit_log=arguments.audit_log,
        compaction_interval_seconds=arguments.compaction_interval,
    )


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
    handler = logging.StreamHandler()
    if arguments.log_format == "json":
        handler.setFormatter(JsonFormatter())
    level = logging.DEBUG if arguments.verbosity >= 4 else logging.INFO
    logging.basicConfig(level=level, handlers=[handler], force=True)
    try:
        uvloop.run(run(settings_of(arguments)))
    except StorageError as error:
        _LOG.error(STORAGE_REFUSED, extra={"err": str(error)})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
