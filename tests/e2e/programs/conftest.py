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
from tests.e2e.clusters import Cluster
from tests.e2e.commands import ROOT, run
from tests.e2e.programs import image

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
    options = [
        f"--nodes={NODES}",
        "--node-link=lan0",
        *(f"--external-range={text}" for text in EXTERNAL_RANGES),
    ]
    borrowed = os.environ.get("VIRTPLANE_TEST_THREE_NODES")
    made = Cluster(Path(borrowed or tempfile.mkdtemp(prefix="virtplane-programs-")))
    try:
        made.up(*options)
        made.load(programs_archive)
        yield made
    finally:
        if not borrowed:
            made.reset()
