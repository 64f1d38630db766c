"""A cluster of three nodes for the tests of this folder, with addresses for load balancers."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from tests.e2e.claims import CLAIMS
from tests.e2e.clusters import Cluster
from tests.e2e.commands import ROOT, run
from tests.e2e.programs import disks, image
from tests.e2e.programs.disks import Disks
from tests.e2e.programs.manifests import apply, wait_rolled_out
from tests.e2e.support import wait_for

NODES = 3
EXTERNAL_RANGES = ("203.0.113.0/28", "2001:db8:113::/124")


@pytest.fixture(scope="package")
def programs_archive(whole_machine: None) -> Path:
    """The image with the programs. Building takes a while, so it is kept until its sources change."""
    missing = [name for name in ("apt-get", "dpkg-deb", "kubectl") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"not installed: {' '.join(missing)}")
    digest = hashlib.sha256(Path(image.__file__).read_bytes())
    for path in sorted((ROOT / "src/virtplane/image").glob("*.py")):
        digest.update(path.read_bytes())
    archive = Path(tempfile.gettempdir()) / f"virtplane-e2e-programs-{digest.hexdigest()[:12]}.tar"
    if not archive.exists():
        building = archive.with_suffix(f".{os.getpid()}")
        run(sys.executable, "-m", "tests.e2e.programs.image", building, seconds=240, cwd=ROOT)
        building.replace(archive)
    return archive


@pytest.fixture(scope="package")
def three_nodes(programs_archive: Path) -> Iterator[Cluster]:
    """A cluster of three nodes with the image of the programs.

    With ``VIRTPLANE_TEST_THREE_NODES`` set, the cluster in that directory is used and left running.
    """
    options = [f"--nodes={NODES}", *(f"--external-range={text}" for text in EXTERNAL_RANGES)]
    borrowed = os.environ.get("VIRTPLANE_TEST_THREE_NODES")
    made = Cluster(Path(borrowed or tempfile.mkdtemp(prefix="virtplane-programs-")))
    try:
        made.up(*options)
        made.load(programs_archive)
        yield made
    finally:
        if not borrowed:
            made.reset()


@pytest.fixture(scope="package")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="package")
def images(
    three_nodes: Cluster, guest_archive: Path, authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Disks]:
    """nginx with disks that were uploaded as an archive; among them that of the demo guest."""
    cluster, folder = three_nodes, tmp_path_factory.mktemp("images")
    made = disks.make_disks(folder)
    (folder / "guest.img").write_bytes(disks.disk_of_container_image(guest_archive))
    cluster.load(guest_archive)
    wanted = disks.data_volume(disks.NAME, {"upload": {}}, size=400 * disks.MIB, contentType="archive")
    cluster.request("POST", disks.DATA_VOLUMES, wanted)
    configuration = tmp_path_factory.mktemp("server")
    try:
        disks.wait_phase(cluster, disks.NAME, "UploadReady")
        assert disks.upload(cluster, disks.NAME, made.archive()) == 200
        disks.wait_phase(cluster, disks.NAME, "Succeeded")
        apply(cluster, configuration, *disks.server(authority))
        wait_rolled_out(cluster, f"deployment/{disks.NAME}")
        yield made
    finally:
        if (configuration / "manifest.json").exists():
            cluster.kubectl("delete", "-f", str(configuration / "manifest.json"), seconds=60)
        cluster.request("DELETE", f"{disks.DATA_VOLUMES}/{disks.NAME}")


@pytest.fixture
def filled(three_nodes: Cluster, images: Disks) -> Iterator[Cluster]:
    """The cluster with the server of disks; data volumes of a test are deleted after it."""
    yield three_nodes
    names = [each["metadata"]["name"] for each in three_nodes.items(disks.DATA_VOLUMES)]
    for name in names:
        if name != disks.NAME:
            three_nodes.request("DELETE", f"{disks.DATA_VOLUMES}/{name}")
    wait_for("the claims are gone", lambda: len(three_nodes.items(CLAIMS)) <= 1, 60)
