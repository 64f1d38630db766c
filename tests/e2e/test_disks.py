"""Claims under a guest's disks: data that outlives guests, disks that grow, snapshots, and full pools."""

from __future__ import annotations

from functools import partial

import pytest
from tests.e2e.claims import CLAIMS, Claims, claim, device, is_gone, with_claims
from tests.e2e.clusters import NAMESPACE, Cluster, Machine
from tests.e2e.failures import Document
from tests.e2e.support import Console, wait_for
from tests.support.clusters import clean_up

pytestmark = [pytest.mark.host, pytest.mark.guest, pytest.mark.timeout(240)]

SNAPSHOTS = f"/apis/snapshot.storage.k8s.io/v1/namespaces/{NAMESPACE}/volumesnapshots"
_MIB = 2048
"""Sectors of 512 bytes."""


def _sectors(console: Console, device: str) -> int:
    return int(console.run(f"cat /sys/block/{device}/size"))


def _has_grown(console: Console, device: str) -> bool:
    return _sectors(console, device) > 90 * _MIB


@pytest.mark.feature("VML-36")
def test_disks_on_claims_outlive_their_guest_and_grow_while_it_runs(cluster: Cluster, claims: Claims) -> None:
    for name, mode in (("files", "Filesystem"), ("blocks", "Block")):
        claims.create(claim(name, "64Mi", mode))
    machine = cluster.create(with_claims("keeper", *claims.names))
    try:
        machine.wait_running()
        _write_and_grow(cluster, machine, claims)
        first = machine.uid()
        cluster.virtctl("restart", "keeper")
        machine.wait_restarted(first)
        with machine.console() as console:
            for name in claims.names:
                disk = device(console, name)
                assert console.run(f"dd if=/dev/{disk} bs=5 count=1 2>/dev/null") == name[:5]
                assert _sectors(console, disk) > 90 * _MIB
    finally:
        clean_up([machine])


def _write_and_grow(cluster: Cluster, machine: Machine, claims: Claims) -> None:
    with machine.console() as console:
        for name in claims.names:
            disk = device(console, name)
            assert 57 * _MIB < _sectors(console, disk) <= 64 * _MIB
            console.run(f"echo {name} | dd of=/dev/{disk} conv=fsync 2>/dev/null")
        for name in claims.names:
            more = {"spec": {"resources": {"requests": {"storage": "128Mi"}}}}
            cluster.request("PATCH", f"{CLAIMS}/{name}", more)
        for name in claims.names:
            disk = device(console, name)
            wait_for(f"{name} has grown", partial(_has_grown, console, disk), 60)


def test_a_snapshot_keeps_what_the_disk_held_and_fills_a_new_claim(cluster: Cluster, claims: Claims) -> None:
    claims.create(claim("taken", "64Mi", "Block"))
    machine = cluster.create(with_claims("taker", "taken"))
    try:
        machine.wait_running()
        with machine.console() as console:
            disk = device(console, "taken")
            console.run(f"echo before | dd of=/dev/{disk} conv=fsync 2>/dev/null")
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
            console.run(f"echo after- | dd of=/dev/{disk} conv=fsync 2>/dev/null")
    finally:
        clean_up([machine])
    origin = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "kept"}
    claims.create(claim("restored", "64Mi", "Block", origin))
    reader = cluster.create(with_claims("reader", "restored"))
    try:
        reader.wait_running()
        with reader.console() as console:
            disk = device(console, "restored")
            assert console.run(f"dd if=/dev/{disk} bs=6 count=1 2>/dev/null") == "before"
    finally:
        clean_up([reader])
        cluster.request("DELETE", f"{SNAPSHOTS}/kept")
        wait_for("the snapshot is gone", partial(is_gone, cluster, f"{SNAPSHOTS}/kept"), 30)
