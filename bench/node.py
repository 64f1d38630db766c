"""Pods on one node: how fast they become ready, and what the node agent costs while they idle.

    python -m bench.node [--state DIR] [--pods 20] [--together 60] [--idle 100] [--idle-seconds 60]

With ``--state``, the cluster in that directory is used and left running; otherwise a new one, removed at the
end. A count of 0 leaves a part out.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from bench import memory
from bench.figures import heading, machine, percentile, row, say
from kindling.cluster import processes, supervisor
from kindling.cluster.image_names import SANDBOX_IMAGE
from kindling.cluster.instance import require
from kubecore.client import Client, load_kubeconfig
from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.resources import NAMESPACES, PODS, SERVICE_ACCOUNTS
from kubecore.runtime import Informer

_NAMESPACE = "bench-node"
_LIMIT_SECONDS = 180.0
_SETTLE_SECONDS = 15.0
"""After pods are ready; containerd and the agent still clean up."""
_READY_TARGET = 0.6
_TOGETHER_TARGET = 25.0
"""Seconds, for 60 pods on two cores."""
_MEMORY_TARGET = 80.0
"""MiB of the agent with 100 idle pods."""
_CPU_TARGET = 3.0
"""Percent of a core that the agent may use with idle pods."""


class Pods:
    """Creates pods and waits for them."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._ready: dict[str, float] = {}
        self._changed = asyncio.Event()
        self._informer: Informer[JsonObject] = Informer(client, PODS, namespace=_NAMESPACE)
        self._informer.add_handler(self._on_event)

    async def run(self) -> None:
        """Follow the pods until cancelled."""
        await self._informer.run()

    def _on_event(self, event: str, _old: JsonObject | None, new: JsonObject) -> None:
        name = meta.name(new)
        if event == "DELETED":
            self._ready.pop(name, None)
        elif name not in self._ready and meta.is_condition_true(new, "Ready"):
            self._ready[name] = time.monotonic()
        self._changed.set()

    async def _until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(_LIMIT_SECONDS):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()

    async def create(self, names: Iterable[str]) -> list[float]:
        """Create pods at once; returns the seconds until each was ready. Raises TimeoutError."""
        begun: dict[str, float] = {}

        async def one(name: str) -> None:
            begun[name] = time.monotonic()
            await self._client.create(PODS, _pod(name), _NAMESPACE)

        await asyncio.gather(*(one(name) for name in names))
        await self._until(lambda: begun.keys() <= self._ready.keys())
        return [self._ready[name] - at for name, at in begun.items()]

    async def delete_all(self) -> float:
        """Delete all pods; returns the seconds until they were gone. Raises TimeoutError."""
        begun = time.monotonic()
        await self._client.delete_collection(PODS, _NAMESPACE)
        await self._until(lambda: not self._informer.list())
        return time.monotonic() - begun


def _pod(name: str) -> JsonObject:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "volumes": [{"name": "scratch", "emptyDir": {}}],
            "containers": [
                {
                    "name": "c",
                    "image": SANDBOX_IMAGE,
                    "imagePullPolicy": "Never",
                    "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
                }
            ],
        },
    }


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(each) for each in fields[11:13]) / os.sysconf("SC_CLK_TCK")


async def _one_after_another(pods: Pods, count: int) -> None:
    took = [(await pods.create([f"single-{number}"]))[0] for number in range(count)]
    middle, slow = percentile(took, 0.5), percentile(took, 0.95)
    row(
        f"create to Ready, P50 / P95 of {count}",
        f"{middle:.2f} / {slow:.2f} s",
        target=f"P50 {_READY_TARGET} s",
        met=middle <= _READY_TARGET,
    )
    row(f"delete to gone, all {count}", f"{await pods.delete_all():.2f} s")


async def _together(pods: Pods, count: int) -> None:
    took = await pods.create(f"together-{number}" for number in range(count))
    row(
        f"{count} at once, P50 / last",
        f"{percentile(took, 0.5):.2f} / {max(took):.2f} s",
        target=f"{_TOGETHER_TARGET:.0f} s",
        met=max(took) <= _TOGETHER_TARGET,
    )
    row(f"delete to gone, all {count}", f"{await pods.delete_all():.2f} s")


async def _idle(pods: Pods, count: int, seconds: float, agents: dict[str, int]) -> None:
    await pods.create(f"idle-{number}" for number in range(count))
    await asyncio.sleep(_SETTLE_SECONDS)
    before = {name: _cpu_seconds(pid) for name, pid in agents.items()}
    await asyncio.sleep(seconds)
    for name, pid in agents.items():
        share = (_cpu_seconds(pid) - before[name]) / seconds * 100
        is_agent = name.startswith("node-")
        row(
            f"{name} with {count} idle pods, CPU",
            f"{share:.2f} % of a core",
            target=f"{_CPU_TARGET:.0f} %" if is_agent else "",
            met=share <= _CPU_TARGET if is_agent else None,
        )
        found = memory.process(pid)
        if found is not None:
            size = found.pss / 1024
            row(
                f"{name}, memory (PSS)",
                f"{size:.1f} MiB",
                target=f"{_MEMORY_TARGET:.0f} MiB" if is_agent else "",
                met=size <= _MEMORY_TARGET if is_agent else None,
            )
    await pods.delete_all()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.node", description=__doc__)
    parser.add_argument("--state", type=Path, help="a cluster to use; default: a new one, removed at the end")
    parser.add_argument("--pods", type=int, default=20, help="pods created one after another")
    parser.add_argument("--together", type=int, default=60, help="pods created at once")
    parser.add_argument("--idle", type=int, default=100, help="pods that idle while the agent is measured")
    parser.add_argument("--idle-seconds", type=float, default=60, help="how long the agent is measured")
    return parser.parse_args()


def _kindling(command: str, state: Path) -> None:
    subprocess.run([sys.executable, "-m", "kindling.cluster.cli", command, "--state", str(state)], check=True)


async def _measure(state: Path, options: argparse.Namespace) -> None:
    instance = require(state)
    specs = processes.specs(instance)
    running = supervisor.find_children(instance.id, specs)
    node = instance.node_names[0]
    agents = {name: running[name] for name in (f"node-{node}", f"containerd-{node}") if name in running}
    async with Client(load_kubeconfig(instance.kubeconfig)) as client:
        metadata = {"name": _NAMESPACE}
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        # Pods are refused until their namespace has its account.
        async for event in client.watch(SERVICE_ACCOUNTS, _NAMESPACE):
            if event.type == "ADDED" and meta.name(event.object) == "default":
                break
        pods = Pods(client)
        following = asyncio.create_task(pods.run())
        try:
            heading("Pods on a node", "here", "", "target")
            if options.pods:
                await _one_after_another(pods, options.pods)
            if options.together:
                await _together(pods, options.together)
            if options.idle:
                await _idle(pods, options.idle, options.idle_seconds, agents)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await client.delete(NAMESPACES, _NAMESPACE)


def main() -> int:
    """The command line."""
    options = _arguments()
    say(machine())
    if options.state is not None:
        asyncio.run(_measure(options.state, options))
    else:
        state = Path(tempfile.mkdtemp(prefix="bench-node-"))
        try:
            _kindling("up", state)
            asyncio.run(_measure(state, options))
        finally:
            _kindling("reset", state)
            shutil.rmtree(state, ignore_errors=True)
    say(machine())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
