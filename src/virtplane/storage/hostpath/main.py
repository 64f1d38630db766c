"""``virtplane hostpath-driver``: the hostpath provisioner's CSI driver on one node."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry

from kubecore.logs import set_up_logging
from kubecore.runtime.health import Health, serve_health
from virtplane.storage.hostpath.configuration import BadConfiguration, Configuration, configuration
from virtplane.storage.hostpath.metrics import PoolMetrics
from virtplane.storage.hostpath.pool import Pool
from virtplane.storage.hostpath.recovery import recover
from virtplane.storage.hostpath.reserve import replenish
from virtplane.storage.hostpath.server import Server, socket_path

_log = logging.getLogger(__name__)

_DRIVER = "hostpath.csi.kubevirt.io"
_ENDPOINT = "unix://tmp/csi.sock"
EXIT_FAILED = 1


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Read the command line; exits with status 2 where it makes no sense."""
    parser = argparse.ArgumentParser(
        prog="virtplane hostpath-driver", description="Serve volumes in folders of this node through CSI."
    )
    parser.add_argument("--drivername", default=_DRIVER, help="the driver's name")
    parser.add_argument("--endpoint", default=_ENDPOINT, help="socket to serve on")
    parser.add_argument("--nodeid", default="", help="this node's name")
    parser.add_argument("--datadir", default="", help="the storage pools, as JSON")
    parser.add_argument("--version", default="", help="the version that the driver reports")
    parser.add_argument(
        "--metrics-port", type=int, default=8080, help="where metrics are served; 0 for nowhere"
    )
    parser.add_argument("--v", default="3", help="accepted for upstream's manifests; the log has one level")
    return parser.parse_args(argv)


@asynccontextmanager
async def serving(settings: Configuration, metrics_port: int) -> AsyncIterator[None]:
    """Serve volumes, and metrics unless the port is 0, within. Raises OSError, BadConfiguration."""
    server_socket = socket_path(settings.endpoint)
    pools = {info.name: Pool(info) for info in settings.pools}
    for pool in pools.values():
        pool.prepare()
        _log.info("name: %s, dataDir: %s, snapshotDir: %s", pool.name, pool.folder, pool.snapshots)
    recover(pools.values(), settings.node)
    replenish(pools.values())
    server = Server(settings, pools)
    await server.start()
    try:
        metrics = PoolMetrics(pools.values(), server_socket.parent)
        if metrics.is_shared_with_system():
            _log.warning(
                "a pool shares its disk with the system, so volumes can fill that up: use another disk"
            )
        if metrics_port == 0:
            yield
            return
        registry = CollectorRegistry()
        metrics.register(registry)
        async with serve_health(Health(), metrics_port, registry=registry, metrics_wait=True):
            yield
    finally:
        await server.stop()


def prepare_process(options: argparse.Namespace) -> Configuration:
    """Set the process up for serving; gives what to serve. Raises BadConfiguration."""
    os.umask(0o022)
    # Copies of deeply nested directories hold many files open at a time.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return configuration(
        options.drivername, options.nodeid, options.endpoint, options.version, options.datadir
    )


async def run(settings: Configuration, metrics_port: int) -> None:
    """Serve until SIGTERM or SIGINT. Raises OSError, BadConfiguration."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with serving(settings, metrics_port):
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopped.set)
        await stopped.wait()


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the command; gives the exit status."""
    options = parse(sys.argv[1:] if argv is None else argv)
    set_up_logging("hostpath-provisioner")
    try:
        asyncio.run(run(prepare_process(options), options.metrics_port))
    except BadConfiguration as error:
        _log.error("failed to initialize driver: %s", error)
        return EXIT_FAILED
    except OSError as error:
        _log.error("the driver cannot run: %s", error)
        return EXIT_FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
