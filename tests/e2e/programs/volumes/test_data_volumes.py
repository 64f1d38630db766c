"""Data volumes from nginx, docker-registry, nodes and clients: what arrives, and how failures are told."""

from __future__ import annotations

import hashlib

import pytest
import trustme
from tests.e2e.claims import CLAIMS
from tests.e2e.clusters import CORE, NAMESPACE, Cluster, manifest
from tests.e2e.failures import Document
from tests.e2e.programs.manifests import apply, document
from tests.e2e.programs.volumes import disks
from tests.e2e.programs.volumes.disks import (
    DATA_VOLUMES,
    SIZE,
    Disks,
    arrived,
    condition,
    create,
    data_volume,
    from_http,
    phase,
    upload,
    wait_phase,
)
from tests.e2e.support import wait_for
from tests.support.clusters import clean_up

pytestmark = [pytest.mark.host, pytest.mark.timeout(400)]

_EVENTS = f"{CORE}/namespaces/{NAMESPACE}/events"


@pytest.mark.feature("STO-44", "STO-46", "STO-51", "STO-52", "VMC-45", "VMC-50")
def test_disks_of_every_format_and_packing_arrive_whole(filled: Cluster, images: Disks) -> None:
    modes = {}
    for number, file in enumerate(name for name in images.names if name != "guest.img"):
        name, mode = file.replace(".", "-"), ("Filesystem", "Block")[number % 2]
        folder = "whole/" if number % 3 == 2 else ""
        create(filled, data_volume(name, from_http(folder + file), mode=mode))
        modes[name] = mode
    arrived(filled, images, modes)


@pytest.mark.feature("VMC-76", "VMC-77")
def test_server_with_its_own_authority_a_password_and_a_checksum(
    filled: Cluster, images: Disks, authority: trustme.CA
) -> None:
    folder = images.folder.parent
    pem = authority.cert_pem.bytes().decode()
    secret = disks.secret("reader", accessKeyId=disks.USER, secretKey=disks.PASSWORD)
    apply(filled, folder, document("ConfigMap", "authority", data={"ca.pem": pem}), secret)
    digest = hashlib.sha256((images.folder / "disk.qcow2").read_bytes()).hexdigest()
    url = f"https://{disks.HOST}:{disks.TLS_PORT}/disk.qcow2"
    trusted: Document = {"url": url, "certConfigMap": "authority", "secretRef": "reader"}
    good = {"http": {**trusted, "checksum": f"sha256:{digest}"}}
    wrong = {"http": {**trusted, "checksum": f"sha256:{'0' * 64}"}}
    create(filled, data_volume("good", good), data_volume("wrong", wrong))
    create(filled, data_volume("untrusted", {"http": {"url": url, "secretRef": "reader"}}))
    create(filled, data_volume("moved", from_http("moved/disk.raw")))
    arrived(filled, images, {"good": "Filesystem", "moved": "Filesystem"})

    def told(name: str, text: str) -> bool:
        return text in condition(filled, name, "Running").get("message", "")

    wait_for("the checksum is wrong", lambda: told("wrong", "checksum mismatch"), 60)
    wait_for("the authority is unknown", lambda: told("untrusted", "certificate"), 60)
    assert "disk.img" not in str(filled.find(f"{CLAIMS}/wrong"))
    assert phase(filled, "wrong") != "Succeeded"
    assert disks.PASSWORD not in str(filled.items(_EVENTS))


@pytest.mark.parametrize(
    ("path", "size", "text"),
    [
        ("missing.raw", SIZE, "expected status code 200, got 404"),
        ("kept/disk.raw", SIZE, "expected status code 200, got 403"),
        ("broken/disk.raw", SIZE, "expected status code 200, got 500"),
    ],
)
def test_refusals_of_a_server_are_told_and_tried_again(
    filled: Cluster, path: str, size: int, text: str
) -> None:
    create(filled, data_volume("refused", from_http(path), size=size))
    wait_for("it is told", lambda: text in condition(filled, "refused", "Running").get("message", ""), 60)
    wait_for(
        "it is tried again",
        lambda: (
            filled.request("GET", f"{DATA_VOLUMES}/refused").get("status", {}).get("restartCount", 0) >= 2
        ),
        60,
    )
    claim = filled.request("GET", f"{CLAIMS}/refused")
    assert claim["status"]["phase"] == "Pending"


def test_disk_that_does_not_fit_is_refused(filled: Cluster) -> None:
    create(filled, data_volume("small", from_http("guest.img"), size=disks.MIB))
    text = "DataVolume too small to contain image"
    wait_for("the size is told", lambda: text in condition(filled, "small", "Running").get("message", ""), 60)


@pytest.mark.feature("STO-37", "VMC-48", "VMC-78")
def test_registry_and_node_bring_disks_of_container_images(
    filled: Cluster, images: Disks, container_image: str
) -> None:
    create(filled, data_volume("pulled", {"registry": {"url": container_image}}))
    node = {"registry": {"url": "docker://virtplane.local/demo-guest:latest", "pullMethod": "node"}}
    create(filled, data_volume("by-node", node, size=256 * disks.MIB))
    arrived(filled, images, {"pulled": "Filesystem"})
    wait_phase(filled, "by-node", "Succeeded")


@pytest.mark.feature("STO-50", "VMC-83")
@pytest.mark.parametrize("path", ["upload", "upload-async"])
def test_what_clients_upload_arrives(filled: Cluster, images: Disks, path: str) -> None:
    modes = {"files": "Filesystem", "blocks": "Block"}
    for name, mode in modes.items():
        create(filled, data_volume(name, {"upload": {}}, mode=mode))
    for name in modes:
        wait_phase(filled, name, "UploadReady")
        assert upload(filled, name, (images.folder / "disk.qcow2").read_bytes(), path) == 200
    arrived(filled, images, modes)


@pytest.mark.guest
@pytest.mark.feature("VMC-73", "VMC-75")
def test_machine_boots_the_disk_that_its_template_imports(filled: Cluster) -> None:
    wanted = manifest("imported", grace=2)
    template = data_volume("imported-root", from_http("guest.img"), size=256 * disks.MIB)
    wanted["spec"]["dataVolumeTemplates"] = [template]
    spec = wanted["spec"]["template"]["spec"]
    spec["volumes"][0] = {"name": "root", "dataVolume": {"name": "imported-root"}}
    machine = filled.create(wanted)
    try:
        wait_for("the machine runs", machine.is_running, 120)
        with machine.console() as console:
            assert console.run("hostname") == "imported"
        source = filled.request("GET", f"{DATA_VOLUMES}/imported-root")
        assert source["metadata"]["ownerReferences"][0]["name"] == "imported"
    finally:
        clean_up([machine])
    wait_for("its disk goes with it", lambda: filled.find(f"{DATA_VOLUMES}/imported-root") is None, 30)
