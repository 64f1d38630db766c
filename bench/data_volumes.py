"""Data volumes: `python -m bench.data_volumes [--state DIR] [--archive GUEST.tar] [--small]`, as root.

Imports from a web server on a node and uploads, beside curl and qemu-img doing the same by hand; 20 imports
at once, and how fast the API answers meanwhile; clones of 10 GiB; machines with a clone of the guest in
`--archive`; memory of workers, and what CDI takes at rest. Brings a cluster up and removes it, unless
`--state` names one. `--small` shows in a few minutes whether it runs to its end: such figures say little.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from bench import memory
from bench.cdi_at_rest import at_rest
from bench.figures import heading, machine, percentile, row, say
from bench.vm import Instance
from kubecore.client import Client, load_kubeconfig
from kubecore.json import JsonObject, get_list, get_str
from kubecore.objects import meta
from kubecore.resources import (
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    SERVICES,
    ResourceType,
)
from virtplane.api.resources import (
    DATA_VOLUMES,
    UPLOAD_TOKEN_REQUESTS,
    VIRTUAL_MACHINE_INSTANCES,
    VIRTUAL_MACHINES,
)

_ROOT = Path(__file__).resolve().parents[1]
_NAMESPACE = "bench-data-volumes"
_GUEST = "docker://virtplane.local/demo-guest:latest"
_LIMIT_SECONDS = 300.0
_MIB = 1 << 20
_PORT = 8090
_SHARE, _UPLOAD_SHARE, _CLONE_SECONDS, _CROWD_SHARE, _API_SECONDS = 1.15, 1.2, 1.0, 1.3, 0.25
_MACHINE_SECONDS, _WORKER_MIB = 3.0, 120
_KINDS = {"qcow2": "disk.qcow2", "raw": "disk.raw", "raw, gzip": "disk.raw.gz"}
_WORKERS = ("virt-cdi-importer", "virt-cdi-uploadserver")
_INSTALLATION = "kubevirt"


@dataclass(frozen=True)
class _Plan:
    """How much of everything. Sizes are in bytes; a disk of `size` has `content` that cannot be packed."""

    size: int = 1 << 30
    content: int = 300 * _MIB
    small: int = 48 * _MIB
    times: int = 3
    at_once: int = 20
    clones: int = 10
    cloned: int = 10 << 30


_SMALL = _Plan(128 * _MIB, 32 * _MIB, 8 * _MIB, times=1, at_once=4, clones=2, cloned=1 << 30)


def _make(folder: Path, plan: _Plan) -> None:
    """The disk in each format, and a small one."""
    chance = random.Random(1)
    raw, pieces = folder / "disk.raw", plan.content // _MIB
    with raw.open("wb") as disk:
        disk.truncate(plan.size)
        for number in range(pieces):
            disk.seek(number * plan.size // pieces // _MIB * _MIB)
            disk.write(chance.randbytes(_MIB))
    subprocess.run(["qemu-img", "convert", "-O", "qcow2", "disk.raw", "disk.qcow2"], cwd=folder, check=True)
    subprocess.run(["gzip", "--keep", "-1", "disk.raw"], cwd=folder, check=True)
    (folder / "small.raw").write_bytes(chance.randbytes(plan.small))


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

    def __init__(self, client: Client, address: str, plan: _Plan) -> None:
        self._client, self._server, self._plan = client, f"http://{address}:{_PORT}", plan

    async def fill(self, name: str, source: JsonObject, size: int) -> float:
        """Seconds from the creation of a DataVolume until it has succeeded. Raises TimeoutError."""
        begun = time.monotonic()
        made = await self._client.create(DATA_VOLUMES, _data_volume(name, source, size), _NAMESPACE)
        await self._until(DATA_VOLUMES, made, "Succeeded")
        return time.monotonic() - begun

    async def _until(self, kind: ResourceType, made: JsonObject, phase: str) -> None:
        """Wait for a phase of an object as it was created or read."""
        selector, version = f"metadata.name={meta.name(made)}", meta.resource_version(made)
        async with asyncio.timeout(_LIMIT_SECONDS):
            async for event in self._client.watch(
                kind, _NAMESPACE, resource_version=version, field_selector=selector
            ):
                if get_str(event.object, "status", "phase") == phase:
                    return
        raise TimeoutError(meta.name(made))

    def source(self, file: str) -> JsonObject:
        """A file of the server."""
        return {"http": {"url": f"{self._server}/{file}"}}

    async def imports(self, node: list[str], folder: Path) -> None:
        """Each kind of file, beside the same by hand."""
        plan = self._plan
        heading(
            f"import of {plan.size // _MIB} MiB, {plan.content // _MIB} of it content",
            f"median of {plan.times}",
            "by hand",
            "target",
        )
        async with self._scratch_claims() as scratch:
            for kind, file in _KINDS.items():
                name = file.replace(".", "-")
                taken = [
                    await self.fill(f"{name}-{each}", self.source(file), plan.size)
                    for each in range(plan.times)
                ]
                by_hand = [_by_hand(node, f"{self._server}/{file}", folder) for _ in range(plan.times)]
                _compare(kind, taken, by_hand, _SHARE)
        row("scratch claims meanwhile", f"{len(scratch)}", target="0", met=not scratch)

    @asynccontextmanager
    async def _scratch_claims(self) -> AsyncIterator[set[str]]:
        """The names of scratch claims that there are meanwhile."""
        found: set[str] = set()
        listed = await self._client.list(PERSISTENT_VOLUME_CLAIMS, _NAMESPACE)

        async def look() -> None:
            async for event in self._client.watch(
                PERSISTENT_VOLUME_CLAIMS, _NAMESPACE, resource_version=meta.resource_version(listed)
            ):
                if meta.name(event.object).endswith("-scratch"):
                    found.add(meta.name(event.object))

        async with _meanwhile(look()):
            yield found

    async def uploads(self, node: list[str], folder: Path, served: Path) -> None:
        """Files that a client sends, beside the same taken by hand."""
        plan = self._plan
        service = await self._client.get(SERVICES, "cdi-uploadproxy", _INSTALLATION)
        url = f"https://{get_str(service, 'spec', 'clusterIP')}/v1beta1/upload"
        heading("upload of the same", f"median of {plan.times}", "by hand", "target")
        for kind, file in _KINDS.items():
            name = f"upload-{file.replace('.', '-')}"
            taken = [await self._upload(f"{name}-{each}", url, served / file) for each in range(plan.times)]
            by_hand = [_by_hand(node, f"{self._server}/{file}", folder) for _ in range(plan.times)]
            _compare(kind, taken, by_hand, _UPLOAD_SHARE)

    async def _upload(self, name: str, url: str, file: Path) -> float:
        """Seconds from the first byte that is sent until the DataVolume has succeeded."""
        wanted = _data_volume(name, {"upload": {}}, self._plan.size)
        await self._until(
            DATA_VOLUMES, await self._client.create(DATA_VOLUMES, wanted, _NAMESPACE), "UploadReady"
        )
        request: JsonObject = {
            "apiVersion": UPLOAD_TOKEN_REQUESTS.api_version,
            "kind": UPLOAD_TOKEN_REQUESTS.kind,
            "metadata": {"name": name},
            "spec": {"pvcName": name},
        }
        answer = await self._client.create(UPLOAD_TOKEN_REQUESTS, request, _NAMESPACE)
        header = f"Authorization: Bearer {get_str(answer, 'status', 'token')}"
        ready = await self._client.get(DATA_VOLUMES, name, _NAMESPACE)
        begun = time.monotonic()
        command = ["curl", "-skf", "-X", "POST", "-T", str(file), "-H", header, "-H", "Expect:", url]
        sent = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL)
        if await sent.wait():
            raise RuntimeError(f"the upload into {name} failed: curl ended with {sent.returncode}")
        await self._until(DATA_VOLUMES, ready, "Succeeded")
        return time.monotonic() - begun

    async def workers(self) -> None:
        """The most memory of an importer, for each kind of file."""
        heading("memory of an importer, with what it starts", "most", "", "target")
        for kind, file in _KINDS.items():
            peaks: dict[int, int] = {}
            async with _meanwhile(_watch_workers(peaks)):
                await self.fill(f"weighed-{file.replace('.', '-')}", self.source(file), self._plan.size)
            most = max(peaks.values(), default=0) / 1024
            row(kind, f"{most:.0f} MiB", target=f"{_WORKER_MIB} MiB", met=0 < most <= _WORKER_MIB)

    async def crowd(self) -> None:
        """Many imports at once."""
        plan = self._plan
        one = [
            await self.fill(f"one-{number}", self.source("small.raw"), 2 * plan.small) for number in range(3)
        ]
        answers: list[float] = []
        begun = time.monotonic()
        async with _meanwhile(self._ask(answers)):
            await asyncio.gather(
                *(
                    self.fill(f"many-{each}", self.source("small.raw"), 2 * plan.small)
                    for each in range(plan.at_once)
                )
            )
        taken = time.monotonic() - begun
        heading(f"{plan.at_once} imports of {plan.small // _MIB} MiB at once", "", "one by one", "target")
        serial = plan.at_once * sorted(one)[1]
        row(
            "until the last has succeeded",
            f"{taken:.1f} s",
            beside=f"{serial:.1f} s",
            target=f"{_CROWD_SHARE} x",
            met=taken <= _CROWD_SHARE * serial,
        )
        slow = percentile(answers, 0.99)
        row(
            f"a request meanwhile, P99 of {len(answers)}",
            f"{slow * 1000:.0f} ms",
            target=f"{_API_SECONDS * 1000:.0f} ms",
            met=slow <= _API_SECONDS,
        )

    async def _ask(self, taken: list[float]) -> None:
        """Note the seconds of requests, until cancelled."""
        while True:
            begun = time.monotonic()
            await self._client.list(DATA_VOLUMES, _NAMESPACE)
            taken.append(time.monotonic() - begun)
            await asyncio.sleep(0.02)

    async def clones(self) -> None:
        """Clones of a large volume."""
        plan = self._plan
        await self.fill("large", {"blank": {}}, plan.cloned)
        source: JsonObject = {"pvc": {"name": "large", "namespace": _NAMESPACE}}
        taken = [await self.fill(f"clone-{each}", source, plan.cloned) for each in range(plan.clones)]
        heading(f"clone of {plan.cloned >> 30} GiB, {plan.clones} one after another", "P50", "P95", "target")
        _times("until it has succeeded", taken, _CLONE_SECONDS)

    async def machines(self) -> None:
        """Machines that start from a golden image."""
        source: JsonObject = {"registry": {"url": _GUEST, "pullMethod": "node"}}
        await self.fill("golden", source, 256 * _MIB)
        taken = [await self._machine(f"vm-{each}") for each in range(self._plan.clones)]
        heading(f"machine from a golden image, {len(taken)} one after another", "P50", "P95", "target")
        _times("until it is Running", taken, _MACHINE_SECONDS)

    async def _machine(self, name: str) -> float:
        """Seconds from the creation of a machine until its instance runs; it is deleted then."""
        wanted: JsonObject = yaml.safe_load((_ROOT / "examples/demo-vm.yaml").read_text())
        wanted["metadata"] = {"name": name}
        template = _data_volume(name, {"pvc": {"name": "golden", "namespace": _NAMESPACE}}, 256 * _MIB)
        wanted["spec"]["dataVolumeTemplates"] = [template]
        spec = wanted["spec"]["template"]["spec"]
        spec["terminationGracePeriodSeconds"] = 0
        root = next(each for each in spec["volumes"] if "containerDisk" in each)
        del root["containerDisk"]
        root["dataVolume"] = {"name": name}
        listed = await self._client.list(VIRTUAL_MACHINE_INSTANCES, _NAMESPACE)
        listed["metadata"]["name"] = name
        begun = time.monotonic()
        await self._client.create(VIRTUAL_MACHINES, wanted, _NAMESPACE)
        await self._until(VIRTUAL_MACHINE_INSTANCES, listed, "Running")
        taken = time.monotonic() - begun
        await self._client.delete(VIRTUAL_MACHINES, name, _NAMESPACE)
        return taken


def _compare(kind: str, taken: list[float], by_hand: list[float], target: float) -> None:
    """A row of the medians."""
    ours, theirs = sorted(taken)[len(taken) // 2], sorted(by_hand)[len(by_hand) // 2]
    row(
        kind,
        f"{ours:.2f} s, {ours / theirs:.2f} x",
        beside=f"{theirs:.2f} s",
        target=f"{target} x",
        met=ours <= target * theirs,
    )


def _times(what: str, taken: list[float], target: float) -> None:
    """A row of seconds, of which the median is to be at most `target`."""
    half = percentile(taken, 0.5)
    late = f"{percentile(taken, 0.95):.2f} s"
    row(what, f"{half:.2f} s", beside=late, target=f"{target} s", met=half <= target)


async def _watch_workers(peaks: dict[int, int]) -> None:
    """Note the most KiB of each worker with what it has started, until cancelled."""
    while True:
        for entry in Path("/proc").iterdir():
            try:
                command = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
            except OSError:
                continue
            if any(name.encode() in command.partition(b" ")[0] for name in _WORKERS):
                pid = int(entry.name)
                whole = sum(each.pss for each in memory.descendants(pid))
                peaks[pid] = max(peaks.get(pid, 0), whole)
        await asyncio.sleep(0.1)


@asynccontextmanager
async def _meanwhile(work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Work that lasts as long as the context. Raises what it raises."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
    if not task.cancelled():
        task.result()


async def _measure(state: Path, folder: Path, plan: _Plan, has_guest: bool) -> None:
    async with Client(load_kubeconfig(state / "kubeconfig")) as client:
        first = get_list(await client.list(NODES), "items")[0]
        addresses = get_list(first, "status", "addresses")
        address = next(each["address"] for each in addresses if each["type"] == "InternalIP")
        node = ["nsenter", f"--net={state / 'nodes' / meta.name(first) / 'ns/net'}"]
        space: JsonObject = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE}}
        await client.create(NAMESPACES, space)
        measures = _Measures(client, address, plan)
        try:
            with _served(folder, node):
                await measures.imports(node, folder.parent)
                await measures.uploads(node, folder.parent, folder)
                await measures.workers()
                await measures.crowd()
            await measures.clones()
            if has_guest:
                await measures.machines()
        finally:
            await client.delete(NAMESPACES, _NAMESPACE)
        await at_rest(client)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="bench.data_volumes", description=__doc__)
    parser.add_argument("--state", type=Path, help="a cluster to use; default: a new one, removed at the end")
    parser.add_argument("--archive", type=Path, help="the demo guest's image archive, for machines")
    parser.add_argument("--small", action="store_true", help="little of everything, to see that it works")
    options = parser.parse_args()
    plan = _SMALL if options.small else _Plan()
    say(machine())
    with tempfile.TemporaryDirectory(prefix="bench-data-volumes-") as name:
        folder = Path(name) / "served"
        folder.mkdir()
        _make(folder, plan)
        instance = Instance(options.state or Path(name) / "state")
        try:
            if options.state is None:
                instance.up()
            if options.archive:
                instance.kindling("load", str(options.archive))
            asyncio.run(_measure(instance.state, folder, plan, bool(options.archive)))
        finally:
            if options.state is None:
                instance.kindling("reset")
    say(machine())


if __name__ == "__main__":
    main()
