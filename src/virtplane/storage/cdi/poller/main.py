"""The poller's process: one question to a registry, one patch of a DataImportCron."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kubecore.client import Client, ClientConfig, ConnectionFailed
from kubecore.client.config import in_cluster
from kubecore.client.kubeconfig import load_kubeconfig
from kubecore.errors import StatusError
from kubecore.json import get_object
from kubecore.logs import set_up_logging
from kubecore.objects import times
from virtplane.api import cdi_labels as names
from virtplane.api import resources
from virtplane.storage.cdi.poller.digest import NoDigest, Registry, image_digest

_log = logging.getLogger(__name__)
PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_PROXY_CERTIFICATES = Path("/proxycerts")
"""Where the authorities of the proxy are mounted, if there are any."""


@dataclass(frozen=True, slots=True)
class Options:
    """Which cron is told about which image."""

    namespace: str
    cron: str
    url: str
    registry: Registry
    kubeconfig: str = ""
    server: str = ""


def read_options(arguments: Sequence[str], environment: Mapping[str, str]) -> Options:
    """The options of CDI's poller. Exits where one is missing."""
    parser = argparse.ArgumentParser(prog="cdi-source-update-poller", allow_abbrev=False)
    parser.add_argument("-ns", required=True, help="namespace of the DataImportCron")
    parser.add_argument("-cron", required=True, help="name of the DataImportCron")
    parser.add_argument("-url", required=True, help="docker:// reference of the image")
    parser.add_argument("-certdir", default="", help="folder with the registry's authorities")
    parser.add_argument("-kubeconfig", default=environment.get("KUBECONFIG", ""))
    parser.add_argument("-server", default="", help="the API server, outside of a cluster")
    found = parser.parse_args(arguments)
    folders = [Path(found.certdir)] if found.certdir else []
    registry = Registry(
        access_key=environment.get("IMPORTER_ACCESS_KEY_ID", ""),
        secret_key=environment.get("IMPORTER_SECRET_KEY", ""),
        cert_folders=tuple(each for each in (*folders, _PROXY_CERTIFICATES) if each.is_dir()),
        proxies=tuple((name, environment[name]) for name in PROXIES if environment.get(name)),
        insecure_tls=environment.get("INSECURE_TLS", "").lower() in ("1", "t", "true"),
    )
    return Options(found.ns, found.cron, found.url, registry, found.kubeconfig, found.server)


async def poll(options: Options, client: Client) -> None:
    """Ask the registry and tell the cron. Raises NoDigest, StatusError, ConnectionFailed."""
    digest = await image_digest(options.url, options.registry)
    kind = resources.DATA_IMPORT_CRONS
    cron = await client.get(kind, options.cron, options.namespace)
    annotations = {names.LAST_CRON_TIME: times.now_rfc3339()}
    known = get_object(cron, "metadata", "annotations").get(names.SOURCE_DESIRED_DIGEST)
    if known != digest:
        annotations[names.SOURCE_DESIRED_DIGEST] = digest
    _log.info("the digest of %s is %s, before it was %s", options.url, digest, known)
    # The uid has the patch fail on a new cron of the same name.
    metadata = {"uid": cron["metadata"]["uid"], "annotations": annotations}
    await client.patch(kind, options.cron, {"metadata": metadata}, options.namespace, type="merge")


def main() -> int:
    """Poll once, by arguments and environment. The exit code is 1 if that has failed: the job tries again."""
    set_up_logging("cdi-source-update-poller")
    options = read_options(sys.argv[1:], os.environ)
    for name in PROXIES:
        os.environ.pop(name, None)  # They are for registries: the API server is in the cluster.
    try:
        asyncio.run(_run(options))
    except (NoDigest, StatusError, ConnectionFailed) as error:
        _log.error(
            "DataImportCron %s/%s is not told about %s: %s",
            options.namespace,
            options.cron,
            options.url,
            error,
        )
        return 1
    return 0


async def _run(options: Options) -> None:
    async with Client(_config(options)) as client:
        await poll(options, client)


def _config(options: Options) -> ClientConfig:
    if options.kubeconfig:
        return load_kubeconfig(options.kubeconfig)
    return ClientConfig(server=options.server) if options.server else in_cluster()


if __name__ == "__main__":
    sys.exit(main())
