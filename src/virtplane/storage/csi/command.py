"""``virtplane csi``: the program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kubecore.client import Client
from kubecore.client.config import ClientConfig, in_cluster, is_in_cluster
from kubecore.client.kubeconfig import load_kubeconfig
from kubecore.logs import set_up_logging
from virtplane.process import run_until_stopped
from virtplane.storage.csi.options import CONTROLLERS, Options, parse
from virtplane.storage.csi.process import Process, Surroundings


def main(argv: Sequence[str]) -> int:
    """Run until stopped; gives the exit status."""
    options = parse(argv)
    set_up_logging("csi")
    return run_until_stopped(run_parts(options))


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
