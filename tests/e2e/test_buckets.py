"""Disks from an S3 server of others, from the DataVolume's keys to what a pod finds in the volume."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.e2e.claim_users import BLOCK, MIB, NAMESPACE, SHARED
from tests.e2e.clusters import CORE, Cluster
from tests.e2e.failures import Document
from tests.e2e.import_churn import VOLUMES, Volume, users_of_disks
from tests.e2e.support import wait_for
from tests.support.moto_server import serving_bucket

pytestmark = [pytest.mark.host, pytest.mark.timeout(600)]


@pytest.mark.feature("VMC-52")
def test_object_of_a_bucket_fills_a_disk_once_the_keys_are_right(
    cluster: Cluster, moto: Path, tmp_path: Path
) -> None:
    """The server is of others; it runs where pods reach it: in the network of the node."""
    files, keys = tmp_path / "files", f"{CORE}/namespaces/{NAMESPACE}/secrets"
    files.mkdir()
    node = cluster.request("GET", f"{CORE}/nodes/node01")
    address = next(each["address"] for each in node["status"]["addresses"] if each["type"] == "InternalIP")
    network = ["nsenter", f"--net={cluster.state / 'nodes/node01/ns/net'}"]
    with users_of_disks(cluster, tmp_path, MIB) as disks:
        shutil.copy(disks.images.folder / "0.qcow2", files / "a disk.qcow2")
        with serving_bucket(moto, files, address, 8092, network) as bucket:
            for name, secret in (("right", bucket.reader.secret), ("wrong", "another")):
                data = {"accessKeyId": bucket.reader.access, "secretKey": secret}
                cluster.request("POST", keys, {"metadata": {"name": name}, "stringData": data})
                source = {"s3": {"url": f"{bucket.address}/a%20disk.qcow2", "secretRef": name}}
                disks.want(Volume(name, "import", 0, BLOCK, SHARED, source))
            wait_for("users have asked for their disks", disks.catch_up, 30)
            wait_for("the right keys do", lambda: "right" not in disks.phases(), 120)
            wait_for(
                "the wrong ones are told", lambda: _running(cluster, "wrong").get("reason") == "Error", 60
            )
            told = _running(cluster, "wrong")["message"]
            assert told.startswith(
                'Unable to connect to s3 data source: could not get s3 object: "disks/a disk.qcow2": '
                "SignatureDoesNotMatch: The request signature we calculated does not match"
            )
            assert bucket.reader.secret not in told
            right = {"stringData": {"secretKey": bucket.reader.secret}}
            cluster.request("PATCH", f"{keys}/wrong", right)
            wait_for("right keys do there, too", lambda: not disks.phases(), 180)
        wait_for("pods have found the disks", lambda: not disks.unread(), 60)
        assert disks.ledger.problems() == {}
    wait_for("nothing is left", lambda: cluster.find(f"{CORE}/namespaces/{NAMESPACE}") is None, 120)


def _running(cluster: Cluster, name: str) -> Document:
    found = cluster.request("GET", f"{VOLUMES}/{name}").get("status", {}).get("conditions", ())
    return next((each for each in found if each["type"] == "Running"), {})
