"""Data volumes: `python -m bench.data_volumes [--state DIR]`, as root.

Imports from a web server on a node, beside curl and qemu-img doing the same by hand; 20 imports at once, and
how fast the API answers meanwhile; clones of 10 GiB. Brings a cluster up and removes it, unless `--state`
names one.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.figures import heading, machine, percentile, row, say
from bench.vm import Instance
from kubecore.client import Client, load_kubeconfig
from kubecore.json import JsonObject, get_list, get_str
from kubecore.objects import meta
from kubecore.resources import NAMESPACES, NODES
from virtplane.api.resources import DATA_VOLUMES

_NAMESPACE = "bench-data-volumes"
_LIMIT_SECONDS = 300.0
_MIB = 1 << 20
_SIZE, _CONTENT = 1 << 30, 300 * _MIB
_SMALL = 48 * _MIB
_AT_ONCE, _CLONES = 20, 10
_PORT = 8090
_SHARE, _CLONE_SECONDS, _CROWD_SHARE, _API_SECONDS = 1.15, 1.0, 1.3, 0.25
_KINDS = {"qcow2": "disk.qcow2", "raw": "disk.raw", "raw, gzip": "disk.raw.gz"}


def _make(folder: Path) -> None:
    """A disk of 1 GiB with 300 MiB that cannot be packed, and a small one."""
    chance = random.Random(1)
    raw = folder / "disk.raw"
    with raw.open("wb") as disk:
        disk.truncate(_SIZE)
        for number in range(_CONTENT // _MIB):
            disk.seek(number * _SIZE // (_CONTENT // _MIB) // _MIB * _MIB)
            disk.write(chance.randbytes(_MIB))
    subprocess.run(["qemu-img", "convert", "-O", "qcow2", "disk.raw", "disk.qcow2"], cwd=folder, check=True)
    subprocess.run(["gzip", "--keep", "-1", "disk.raw"], cwd=folder, check=True)
    (folder / "small.raw").write_bytes(chance.randbytes(_SMALL))


@contextmanager
def _served(folder: Path, node: list[str]) -> Iterator[None]:
    """busybox's web server, which answers ranges, where pods reach it: in a node's network."""
    command = [*node, "busybox", "httpd", "-f", "-p", str(_PORT), "-h", str(folder)]
    with subprocess.Popen(command) as server:
        try:
            yield
        finally:
            server.kill()


def _by_hand(node: list[str], url: str, folder: Path) -> float:
    """Seconds that curl and qemu-img take."""
    name = url.rpartition("/")[2]
    begun = time.monotonic()
    subprocess.run([*node, "curl", "-sfo", name, url], cwd=folder, check=True)
    if name.endswith(".gz"):
        subprocess.run(["gunzip", "--force", name], cwd=folder, check=True)
    source = name.removesuffix(".gz")
    subprocess.run(
        ["qemu-img", "convert", "-O", "raw", source, "out.raw"],
        cwd=folder,
        check=True,
    )
    subprocess.run(["sync", "out.raw"], cwd=folder, check=True)
    taken = time.monotonic() - begun
    for path in (folder / "out.raw", folder / source):
        path.unlink()
    return taken


def _data_volume(name: str, source: JsonObject, size: int) -> JsonObject:
    return {
        "apiVersion": DATA_VOLUMES.api_version,
        "kind": DATA_VOLUMES.kind,
        "metadata": {"name": name},
        "spec": {"source": source, "storage": {"resources": {"requests": {"storage": str(size)}}}},
    }


class _Measures:
    """The measurements on one cluster."""

    def __init__(self, client: Client, address: str) -> None:
        self._client, self._server = client, f"http://{address}:{_PORT}"

    async def fill(self, name: str, source: JsonObject, size: int = _SIZE) -> float:
        """Seconds from the creation of a DataVolume until it has succeeded. Raises TimeoutError."""
        begun = time.monotonic()
        made = await self._client.create(DATA_VOLUMES, _data_volume(name, source, size), _NAMESPACE)
        selector, version = f"metadata.name={name}", meta.resource_version(made)
        async with asyncio.timeout(_LIMIT_SECONDS):
            async for event in self._client.watch(
                DATA_VOLUMES, _NAMESPACE, resource_version=version, field_selector=selector
            ):
                if get_str(event.object, "status", "phase") == "Succeeded":
                    return time.monotonic() - begun
        raise TimeoutError(name)

    def source(self, file: str) -> JsonObject:
        """A file of the server."""
        return {"http": {"url": f"{self._server}/{file}"}}

    async def imports(self, node: list[str], folder: Path) -> None:
        """Each kind of file, three times, beside the same by hand."""
        heading("import of 1 GiB, 300 MiB of it content", "median of 3", "by hand", "target")
        for kind, file in _KINDS.items():
            name = file.replace(".", "-")
            taken = sorted([await self.fill(f"{name}-{each}", self.source(file)) for each in range(3)])[1]
            url = f"{self._server}/{file}"
            by_hand = sorted([_by_hand(node, url, folder) for _ in range(3)])[1]
            share = taken / by_hand
            row(
                kind,
                f"{taken:.2f} s",
                beside=f"{by_hand:.2f} s",
                target=f"{_SHARE} x",
                met=share <= _SHARE,
            )

    async def crowd(self) -> None:
        """Many imports at once."""
        one = [await self.fill(f"one-{number}", self.source("small.raw"), 2 * _SMALL) for number in range(3)]
        begun, asked = time.monotonic(), asyncio.create_task(self._ask())
        await asyncio.gather(
            *(self.fill(f"many-{each}", self.source("small.raw"), 2 * _SMALL) for each in range(_AT_ONCE))
        )
        taken = time.monotonic() - begun
        asked.cancel()
        (answers,) = await asyncio.gather(asked)
        heading(f"{_AT_ONCE} imports of {_SMALL // _MIB} MiB at once", "", "one by one", "target")
        serial = _AT_ONCE * sorted(one)[1]
        row(
            "until the last has succeeded",
            f"{taken:.1f} s",
            beside=f"{serial:.1f} s",
            target=f"{_CROWD_SHARE} x",
            met=taken <= _CROWD_SHARE * serial,
        )
        slow = percentile(answers, 0.99)
        row(
            "a request meanwhile, P99",
            f"{slow * 1000:.0f} ms",
            target=f"{_API_SECONDS * 1000:.0f} ms",
            met=slow <= _API_SECONDS,
        )

    async def _ask(self) -> list[float]:
        """Seconds of requests, until cancelled."""
        taken: list[float] = []
        try:
            while True:
                begun = time.monotonic()
                await self._client.list(DATA_VOLUMES, _NAMESPACE)
                taken.append(time.monotonic() - begun)
                await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            return taken

    async def clones(self) -> None:
        """Clones of a large volume."""
        await self.fill("large", {"blank": {}}, 10 << 30)
        source: JsonObject = {"pvc": {"name": "large", "namespace": _NAMESPACE}}
        taken = [await self.fill(f"clone-{each}", source, 10 << 30) for each in range(_CLONES)]
        half = percentile(taken, 0.5)
        heading(f"clone of 10 GiB, {_CLONES} one after another", "P50", "P95", "target")
        row(
            "until it has succeeded",
            f"{half:.2f} s",
            beside=f"{percentile(taken, 0.95):.2f} s",
            target=f"{_CLONE_SECONDS} s",
            met=half <= _CLONE_SECONDS,
        )


async def _measure(state: Path, folder: Path) -> None:
    async with Client(load_kubeconfig(state / "kubeconfig")) as client:
        first = get_list(await client.list(NODES), "items")[0]
        addresses = get_list(first, "status", "addresses")
        address = next(each["address"] for each in addresses if each["type"] == "InternalIP")
        node = ["nsenter", f"--net={state / 'nodes' / meta.name(first) / 'ns/net'}"]
        space: JsonObject = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE}}
        await client.create(NAMESPACES, space)
        measures = _Measures(client, address)
        try:
            with _served(folder, node):
                await measures.imports(node, folder.parent)
                await measures.crowd()
            await measures.clones()
        finally:
            await client.delete(NAMESPACES, _NAMESPACE)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="bench.data_volumes", description=__doc__)
    parser.add_argument("--state", type=Path, help="a cluster to use; default: a new one, removed at the end")
    options = parser.parse_args()
    say(machine())
    with tempfile.TemporaryDirectory(prefix="bench-data-volumes-") as name:
        folder = Path(name) / "served"
        folder.mkdir()
        _make(folder)
        instance = Instance(options.state or Path(name) / "state")
        try:
            if options.state is None:
                instance.up()
            asyncio.run(_measure(instance.state, folder))
        finally:
            if options.state is None:
                instance.kindling("reset")
    say(machine())


if __name__ == "__main__":
    main()
