"""Claims under a guest's disks: data that outlives guests, disks that grow, snapshots, and full pools."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from tests.e2e.clusters import CORE, NAMESPACE, Cluster, Machine, manifest
from tests.e2e.failures import Document
from tests.e2e.support import Console, wait_for
from tests.support.clusters import clean_up

pytestmark = [pytest.mark.host, pytest.mark.guest, pytest.mark.timeout(240)]

CLAIMS = f"{CORE}/namespaces/{NAMESPACE}/persistentvolumeclaims"
SNAPSHOTS = f"/apis/snapshot.storage.k8s.io/v1/namespaces/{NAMESPACE}/volumesnapshots"
_MIB = 2048
"""Sectors of 512 bytes."""


def _claim(name: str, size: str, mode: str, source: Document | None = None) -> Document:
    spec: Document = {"accessModes": ["ReadWriteMany"], "volumeMode": mode}
    spec["resources"] = {"requests": {"storage": size}}
    if source is not None:
        spec["dataSource"] = source
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def claims(cluster: Cluster) -> Iterator[list[str]]:
    """Names of claims that are deleted after the test, with what was made of them."""
    made: list[str] = []
    yield made
    for name in made:
        if cluster.find(f"{CLAIMS}/{name}") is not None:
            cluster.request("DELETE", f"{CLAIMS}/{name}")
    for name in made:
        wait_for(f"claim {name} is gone", partial(_is_gone, cluster, f"{CLAIMS}/{name}"), 30)


def _is_gone(cluster: Cluster, path: str) -> bool:
    return cluster.find(path) is None


def _create(cluster: Cluster, claims: list[str], claim: Document) -> None:
    cluster.request("POST", CLAIMS, claim)
    claims.append(claim["metadata"]["name"])


def _with_claims(name: str, *claims: str) -> Document:
    wanted = manifest(name, grace=2)
    spec = wanted["spec"]["template"]["spec"]
    for claim in claims:
        spec["domain"]["devices"]["disks"].append({"name": claim, "disk": {"bus": "virtio"}, "serial": claim})
        spec["volumes"].append({"name": claim, "persistentVolumeClaim": {"claimName": claim}})
    return wanted


def _device(console: Console, serial: str) -> str:
    return console.run(f"(cd /sys/block; for d in vd*; do grep -qx {serial} $d/serial && echo $d; done)")


def _sectors(console: Console, device: str) -> int:
    return int(console.run(f"cat /sys/block/{device}/size"))


def _has_grown(console: Console, device: str) -> bool:
    return _sectors(console, device) > 90 * _MIB


@pytest.mark.feature("VML-36")
def test_disks_on_claims_outlive_their_guest_and_grow_while_it_runs(
    cluster: Cluster, claims: list[str]
) -> None:
    for name, mode in (("files", "Filesystem"), ("blocks", "Block")):
        _create(cluster, claims, _claim(name, "64Mi", mode))
    machine = cluster.create(_with_claims("keeper", *claims))
    try:
        machine.wait_running()
        _write_and_grow(cluster, machine, claims)
        first = machine.uid()
        cluster.virtctl("restart", "keeper")
        machine.wait_restarted(first)
        with machine.console() as console:
            for name in claims:
                device = _device(console, name)
                assert console.run(f"dd if=/dev/{device} bs=5 count=1 2>/dev/null") == name[:5]
                assert _sectors(console, device) > 90 * _MIB
    finally:
        clean_up([machine])


def _write_and_grow(cluster: Cluster, machine: Machine, claims: list[str]) -> None:
    with machine.console() as console:
        for name in claims:
            device = _device(console, name)
            assert 57 * _MIB < _sectors(console, device) <= 64 * _MIB
            console.run(f"echo {name} | dd of=/dev/{device} conv=fsync 2>/dev/null")
        for name in claims:
            more = {"spec": {"resources": {"requests": {"storage": "128Mi"}}}}
            cluster.request("PATCH", f"{CLAIMS}/{name}", more)
        for name in claims:
            device = _device(console, name)
            wait_for(f"{name} has grown", partial(_has_grown, console, device), 60)


def test_a_snapshot_keeps_what_the_disk_held_and_fills_a_new_claim(
    cluster: Cluster, claims: list[str]
) -> None:
    _create(cluster, claims, _claim("taken", "64Mi", "Block"))
    machine = cluster.create(_with_claims("taker", "taken"))
    try:
        machine.wait_running()
        with machine.console() as console:
            device = _device(console, "taken")
            console.run(f"echo before | dd of=/dev/{device} conv=fsync 2>/dev/null")
            source = {"persistentVolumeClaimName": "taken"}
            snapshot: Document = {"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot"}
            snapshot |= {"metadata": {"name": "kept"}, "spec": {"source": source}}
            cluster.request("POST", SNAPSHOTS, snapshot)
            kept = f"{SNAPSHOTS}/kept"
            wait_for(
                "the snapshot is ready",
                lambda: cluster.request("GET", kept).get("status", {}).get("readyToUse"),
                30,
            )
            console.run(f"echo after- | dd of=/dev/{device} conv=fsync 2>/dev/null")
    finally:
        clean_up([machine])
    origin = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "kept"}
    _create(cluster, claims, _claim("restored", "64Mi", "Block", origin))
    reader = cluster.create(_with_claims("reader", "restored"))
    try:
        reader.wait_running()
        with reader.console() as console:
            device = _device(console, "restored")
            assert console.run(f"dd if=/dev/{device} bs=6 count=1 2>/dev/null") == "before"
    finally:
        clean_up([reader])
        cluster.request("DELETE", f"{SNAPSHOTS}/kept")
        wait_for("the snapshot is gone", partial(_is_gone, cluster, f"{SNAPSHOTS}/kept"), 30)
