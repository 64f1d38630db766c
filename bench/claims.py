"""Claims of a cluster's default class: `python -m bench.claims [--state DIR] [--rounds 20]`, as root.

How long a claim takes from its creation until it is bound, a snapshot until it can be used, a clone until it
is bound, through the API server and all controllers. Brings a cluster up and removes it, unless `--state`
names one.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from bench.figures import heading, machine, percentile, row, say
from bench.vm import Instance
from kubecore.client import Client, load_kubeconfig
from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.resources import NAMESPACES, PERSISTENT_VOLUME_CLAIMS, ResourceType
from virtplane.api.resources import VOLUME_SNAPSHOTS

_NAMESPACE = "bench-claims"
_LIMIT_SECONDS = 30.0
_SIZE = "10Gi"
_TARGETS = {"claim, Filesystem": 150, "claim, Block": 150, "snapshot": 100, "clone": 150}
"""Milliseconds."""


async def _until(
    client: Client, kind: ResourceType, wanted: JsonObject, is_so: Callable[[JsonObject], bool]
) -> float:
    """Milliseconds from the creation of an object until something holds of it. Raises TimeoutError."""
    begun = time.monotonic()
    made = await client.create(kind, wanted, _NAMESPACE)
    selector, version = f"metadata.name={meta.name(made)}", meta.resource_version(made)
    async with asyncio.timeout(_LIMIT_SECONDS):
        async for event in client.watch(kind, _NAMESPACE, resource_version=version, field_selector=selector):
            if is_so(event.object):
                return (time.monotonic() - begun) * 1000
    raise TimeoutError(meta.name(made))


def _is_bound(claim: JsonObject) -> bool:
    return bool(claim.get("status", {}).get("phase") == "Bound")


def _is_ready(snapshot: JsonObject) -> bool:
    return bool(snapshot.get("status", {}).get("readyToUse"))


def _claim(name: str, mode: str, source: JsonObject | None = None) -> JsonObject:
    spec: JsonObject = {"accessModes": ["ReadWriteOnce"], "volumeMode": mode}
    spec["resources"] = {"requests": {"storage": _SIZE}}
    if source is not None:
        spec["dataSource"] = source
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def _snapshot(name: str) -> JsonObject:
    return {
        "apiVersion": VOLUME_SNAPSHOTS.api_version,
        "kind": VOLUME_SNAPSHOTS.kind,
        "metadata": {"name": name},
        "spec": {"source": {"persistentVolumeClaimName": "block-0"}},
    }


def _calls(client: Client) -> dict[str, Callable[[int], Awaitable[float]]]:
    """What is measured, in this order: snapshots and clones are of the first claim with a Block volume."""
    claim = partial(_until, client, PERSISTENT_VOLUME_CLAIMS)
    origin: JsonObject = {"kind": "PersistentVolumeClaim", "name": "block-0"}
    return {
        "claim, Filesystem": lambda number: claim(_claim(f"files-{number}", "Filesystem"), _is_bound),
        "claim, Block": lambda number: claim(_claim(f"block-{number}", "Block"), _is_bound),
        "snapshot": lambda number: _until(client, VOLUME_SNAPSHOTS, _snapshot(f"snap-{number}"), _is_ready),
        "clone": lambda number: claim(_claim(f"clone-{number}", "Block", origin), _is_bound),
    }


async def _measure(state: Path, rounds: int) -> None:
    async with Client(load_kubeconfig(state / "kubeconfig")) as client:
        space: JsonObject = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE}}
        await client.create(NAMESPACES, space)
        try:
            heading(f"claims of {_SIZE}, {rounds} one after another", "P50", "P95", "target")
            for what, call in _calls(client).items():
                taken = [await call(number) for number in range(rounds)]
                half, target = percentile(taken, 0.5), _TARGETS[what]
                slow = f"{percentile(taken, 0.95):.0f} ms"
                row(what, f"{half:.0f} ms", beside=slow, target=f"{target} ms", met=half <= target)
        finally:
            await client.delete(NAMESPACES, _NAMESPACE)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="bench.claims", description=__doc__)
    parser.add_argument("--state", type=Path, help="a cluster to use; default: a new one, removed at the end")
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    say(machine())
    with tempfile.TemporaryDirectory(prefix="bench-claims-") as folder:
        instance = Instance(options.state or Path(folder) / "state")
        try:
            if options.state is None:
                instance.up()
            asyncio.run(_measure(instance.state, options.rounds))
        finally:
            if options.state is None:
                instance.kindling("reset")
    say(machine())


if __name__ == "__main__":
    main()
