"""``virtplane demo``: starts a cluster and boots a guest to its login prompt."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml

from kubecore.client import Client, load_kubeconfig
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_str
from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.resources import SUBRESOURCES_PATH, VIRTUAL_MACHINE_INSTANCES, VIRTUAL_MACHINES
from virtplane.cli import cluster, load
from virtplane.cli.state import add_state_option
from virtplane.cli.terminal import CommandError, require_root, say, step
from virtplane.cli.virtctl.talking.streams import open_stream

_NAMESPACE = "default"
_PROMPT = b"login:"
_POLL_SECONDS = 0.1
_NUDGE_SECONDS = 15.0
"""A prompt that was printed before the console was connected appears again after Return."""


def parser() -> argparse.ArgumentParser:
    """The options of ``demo``."""
    made = argparse.ArgumentParser(
        prog="virtplane demo", description="Start a virtual machine from nothing and show its login prompt."
    )
    add_state_option(made)
    made.add_argument("--timeout", type=float, default=180.0, metavar="SECONDS", help="for the guest to boot")
    return made


def main(arguments: list[str]) -> int:
    """Command line. Raises CommandError."""
    options = parser().parse_args(arguments)
    started = time.monotonic()
    require_root("demo")
    _demo(options.state, options.timeout)
    say(f"\nFrom start to login prompt: {time.monotonic() - started:.1f} s")
    kubeconfig = options.state / "kubeconfig"
    say(f"  export KUBECONFIG={kubeconfig}")
    say("  .venv/bin/virtctl console demo      # log in as root, password virtplane")
    say("  kubectl get vm,vmi,pods             # kubectl is not part of this; get it from kubernetes.io")
    return 0


def _demo(state: Path, timeout_seconds: float) -> None:
    archive = load.demo_guest_archive(state)
    if archive.exists():
        cluster.start(state)
    else:
        with (
            tempfile.TemporaryDirectory(prefix="virtplane-guest-") as folder,
            ThreadPoolExecutor(1, thread_name_prefix="guest-image") as pool,
        ):
            # Build the guest while the cluster starts.
            building = pool.submit(load.build_demo_guest, Path(folder))
            cluster.start(state)
            with step("Building the guest's image"):
                built = building.result()
            load.keep_demo_guest(built, archive)
    load.load_archives(state, [archive])
    asyncio.run(_boot(state, timeout_seconds))


async def _boot(state: Path, timeout_seconds: float) -> None:
    manifest = yaml.safe_load((_examples() / "demo-vm.yaml").read_text())
    async with Client(load_kubeconfig(state / "kubeconfig")) as client:
        deadline = time.monotonic() + timeout_seconds
        with step("Creating the virtual machine demo"):
            await _create(client, manifest)
        with step("Waiting for it to run"):
            await _wait_running(client, get_str(manifest, "metadata", "name"), deadline)
        say("Its console:\n")
        await _show_until_prompt(client, get_str(manifest, "metadata", "name"), deadline)


async def _create(client: Client, manifest: JsonObject) -> None:
    try:
        await client.create(VIRTUAL_MACHINES, manifest, _NAMESPACE)
    except StatusError as error:
        if error.code != 409:
            raise CommandError("The virtual machine was refused.", str(error)) from error


async def _wait_running(client: Client, name: str, deadline: float) -> None:
    phase = "not created"
    while time.monotonic() < deadline:
        try:
            vmi = await client.get(VIRTUAL_MACHINE_INSTANCES, name, _NAMESPACE)
        except StatusError as error:
            if error.code != 404:
                raise
        else:
            phase = decode(VirtualMachineInstance, vmi).status.phase or ""
        if phase == "Running":
            return
        await asyncio.sleep(_POLL_SECONDS)
    raise CommandError(
        f"The virtual machine {name} does not run.",
        f"Its instance is {phase}.",
        f"Look at: kubectl -n {_NAMESPACE} describe vmi {name}",
    )


async def _show_until_prompt(client: Client, name: str, deadline: float) -> None:
    path = f"{SUBRESOURCES_PATH}/namespaces/{_NAMESPACE}/virtualmachineinstances/{name}/console"
    socket = await open_stream(client, path)
    seen = b""
    try:
        while _PROMPT not in seen:
            if time.monotonic() > deadline:
                raise CommandError("No login prompt appeared on the guest's console.")
            try:
                message = await socket.receive(timeout=_NUDGE_SECONDS)
            except TimeoutError:
                await socket.send_bytes(b"\n")
                continue
            if not isinstance(message.data, bytes):
                raise CommandError("The guest's console was disconnected.", f"close code {socket.close_code}")
            seen = (seen + message.data)[-4096:]
            sys.stdout.buffer.write(message.data)
            sys.stdout.buffer.flush()
    finally:
        await socket.close()
    sys.stdout.write("\n")


def _examples() -> Path:
    """The directory of the examples: in a checkout, or installed with the package."""
    checkout = Path(__file__).resolve().parents[3] / "examples"
    return checkout if checkout.is_dir() else Path(__file__).resolve().parents[1] / "examples"
