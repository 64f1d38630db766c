"""virt-controller with 2,000 machines: how long its queues let keys wait, and what a machine costs it.

    python -m bench.controller [--machines 2000] [--rate 10]

API server and virt-controller are processes of their own, as in a cluster. Kubelets and virt-handlers are
played (`bench.played`): pods run at once, guests are domains of libvirt's test driver, which are defined with
the XML of the real ones and run no instruction. No webhook is called: machines are created as virt-api would
leave them. Needs no root.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import uvloop
import yaml

from bench.figures import heading, machine, percentile, row, say
from bench.instances import instance, virtual_machine
from bench.played import PlayedNodes
from bench.server import ADMIN_TOKEN, PORT, Server
from kubecore import resources
from kubecore.client import Client, load_kubeconfig
from kubecore.errors import StatusError
from kubecore.json import JsonObject
from virtplane.api.crds import custom_resource_definitions
from virtplane.api.resources import KUBEVIRTS, VIRTUAL_MACHINES

_NAMESPACE = "kubevirt"
_TENANTS = 20
_NODES = tuple(f"node-{number}" for number in range(20))
_LIMIT_SECONDS = 120.0
_BEAT_SECONDS = 60.0
_WAIT_TARGET, _KIB_TARGET = 0.3, 40


def _machine(number: int) -> JsonObject:
    """A machine without claims, for there is nobody who would bind them."""
    wanted = virtual_machine(number)
    metadata = wanted["metadata"]
    spec = instance(number)["spec"]
    spec["domain"]["memory"], spec["domain"]["cpu"] = {"guest": "1Gi"}, {"cores": 1, "model": "host-model"}
    for volume in spec["volumes"]:
        if volume.pop("persistentVolumeClaim", None) is not None:
            volume["containerDisk"] = {"image": "registry.local/disk:1"}
    template = {"metadata": {"labels": {"app": "guest"}}, "spec": spec}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
        "spec": {"runStrategy": "Always", "template": template},
    }


def _kubeconfig(folder: Path) -> Path:
    cluster = {"server": f"https://127.0.0.1:{PORT}", "insecure-skip-tls-verify": True}
    document = {
        "clusters": [{"name": "bench", "cluster": cluster}],
        "users": [{"name": "bench", "user": {"token": ADMIN_TOKEN}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
        "current-context": "bench",
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return path


async def _prepare(client: Client) -> None:
    """What an installation has: definitions, the KubeVirt object, namespaces."""
    for definition in custom_resource_definitions():
        await client.create(resources.CUSTOM_RESOURCE_DEFINITIONS, definition)
    for name in (_NAMESPACE, *(f"tenant-{number}" for number in range(_TENANTS))):
        await client.create(
            resources.NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        )
        account: JsonObject = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        await client.create(resources.SERVICE_ACCOUNTS, account, name)
    installation = {"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": {"name": "kubevirt"}}
    deadline = time.monotonic() + _LIMIT_SECONDS
    while True:  # until the kind is served
        try:
            await client.create(KUBEVIRTS, {**installation, "spec": {}}, _NAMESPACE)
        except StatusError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.2)
        else:
            return


class _Controller:
    """The process of virt-controller."""

    def __init__(self, process: asyncio.subprocess.Process, waits: Path) -> None:
        self._process = process
        self._waits = waits

    async def waits(self) -> dict[str, list[float]]:
        """The seconds that keys have waited since this was asked last, by controller."""
        self._waits.unlink(missing_ok=True)
        self._process.send_signal(signal.SIGUSR1)
        for _ in range(200):
            await asyncio.sleep(0.05)
            if self._waits.exists():
                found: dict[str, list[float]] = json.loads(self._waits.read_text())
                return found
        raise RuntimeError("virt-controller does not answer")

    def resident_kib(self) -> int:
        """Resident memory."""
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))

    def processor_seconds(self) -> float:
        """Processor time so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def _controlled(folder: Path) -> AsyncIterator[_Controller]:
    waits = folder / "waits"
    options = {"kubeconfig": folder / "kubeconfig", "namespace": _NAMESPACE, "image": "launcher:1"}
    words = [f"--{name}={value}" for name, value in options.items()]
    with (folder / "controller.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.queued", str(waits), "virt-controller", "--health-port=0", *words),
            stdout=log,
            stderr=log,
        )
    try:
        yield _Controller(process, waits)
    finally:
        process.terminate()
        await process.wait()


async def _create(client: Client, machines: range, rate: float) -> dict[str, float]:
    """Create machines at a steady rate; when each was, by name."""
    created: dict[str, float] = {}

    async def create(number: int) -> None:
        wanted = _machine(number)
        created[wanted["metadata"]["name"]] = time.monotonic()
        await client.create(VIRTUAL_MACHINES, wanted)

    begun = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for sent, number in enumerate(machines):
            await asyncio.sleep(max(0.0, begun + sent / rate - time.monotonic()))
            group.create_task(create(number))
    return created


async def _until_running(nodes: PlayedNodes, count: int) -> None:
    deadline = time.monotonic() + _LIMIT_SECONDS
    while len(nodes.running) < count:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{len(nodes.running)} of {count} machines run")
        await asyncio.sleep(0.1)


async def _beating(nodes: PlayedNodes) -> None:
    while True:
        await asyncio.sleep(_BEAT_SECONDS)
        await nodes.beat()


def _tell(waits: dict[str, list[float]], title: str) -> None:
    heading(title, "P50 / P99 / slowest", "keys", "P99")
    every = [each for found in waits.values() for each in found]
    for name, found in [*sorted(waits.items()), ("all", every)]:
        if found:
            slow = percentile(found, 0.99)
            figures = f"{percentile(found, 0.5) * 1e3:.1f} / {slow * 1e3:.1f} / {max(found) * 1e3:.1f} ms"
            is_all = name == "all"
            row(
                name,
                figures,
                beside=str(len(found)),
                target=f"{_WAIT_TARGET} s" if is_all else "",
                met=slow <= _WAIT_TARGET if is_all else None,
            )


async def _measure(folder: Path, machines: int, rate: float) -> None:
    server = Server(folder)
    await server.start()
    path = _kubeconfig(folder)
    try:
        async with Client(load_kubeconfig(str(path))) as client, asyncio.TaskGroup() as group:
            await _prepare(client)
            nodes = PlayedNodes(client, _NODES)
            await nodes.register()
            tasks = [group.create_task(nodes.run()), group.create_task(_beating(nodes))]
            async with _controlled(folder) as controller:
                await _compare(client, nodes, controller, machines, rate)
            for task in tasks:
                task.cancel()
    finally:
        await server.stop()


async def _compare(
    client: Client, nodes: PlayedNodes, controller: _Controller, machines: int, rate: float
) -> None:
    # What the first machines load (code, caches) is no machine's own.
    first = machines // 10
    created = await _create(client, range(first), rate)
    await _until_running(nodes, first)
    await controller.waits()
    memory, spent, begun = controller.resident_kib(), controller.processor_seconds(), time.monotonic()
    created |= await _create(client, range(first, machines), rate)
    lasted, spent = time.monotonic() - begun, controller.processor_seconds() - spent
    await _until_running(nodes, machines)
    waits = await controller.waits()
    each = (controller.resident_kib() - memory) / (machines - first)
    say(machine())
    _tell(waits, f"keys of virt-controller, {rate:g} creates/s")
    heading("virt-controller", "", "", "target")
    row("a machine, resident", f"{each:.1f} KiB", target=f"{_KIB_TARGET} KiB", met=each <= _KIB_TARGET)
    row("processor time while machines are created", f"{spent / lasted * 100:.0f} % of a core")
    took = [nodes.running[name] - at for name, at in created.items()]
    row("create until reported as running", f"{percentile(took, 0.5):.2f} / {percentile(took, 0.99):.2f} s")
    say(machine())


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--machines", type=int, default=2000)
    parser.add_argument("--rate", type=float, default=10.0, help="machines that are created in a second")
    parser.add_argument("--folder", type=Path, help="keep what the processes say here")
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    if options.folder is not None:
        options.folder.mkdir(parents=True, exist_ok=True)
        uvloop.run(_measure(options.folder, options.machines, options.rate))
        return
    with tempfile.TemporaryDirectory(prefix="virtplane-bench-") as folder:
        uvloop.run(_measure(Path(folder), options.machines, options.rate))


if __name__ == "__main__":
    main()
