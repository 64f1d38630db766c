"""One cluster for all tests of the whole product (a pytest plugin: `tests/conftest.py` names it)."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.e2e.claims import Claims
from tests.e2e.clusters import Cluster, Machine, manifest
from tests.e2e.commands import ROOT, run
from tests.support.order import is_short
from tests.support.starvation import starvation_measured

_DEBIAN_SECONDS = 180
"""What building the Debian disk may take on a machine that is not busy otherwise (NEW-10)."""
REMOVAL = pytest.StashKey[ExitStack]()
"""What removes the cluster of all tests."""
_PROGRAMS = ("containerd", "runc", "qemu-system-x86_64", "libvirtd", "nft", "ip", "busybox")


@pytest.fixture(scope="session")
def whole_machine() -> None:
    """Skip where this is not a machine that can run clusters and guests."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    if missing:
        pytest.skip(f"not installed: {' '.join(missing)}")


@pytest.fixture(scope="session")
def guest_archive(whole_machine: None) -> Path:
    """The demo guest's container disk."""
    return _built_guest("virtplane-e2e-guest")


@pytest.fixture(scope="session")
def full_guest_archive(whole_machine: None) -> Path:
    """The container disk of the demo guest that knows all emulated hardware."""
    return _built_guest("virtplane-e2e-full-guest", "--full")


def _built_guest(name: str, *options: str) -> Path:
    """A demo guest's archive. Building takes a while, so it is kept until its sources change."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "src/virtplane/guest").rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            digest.update(path.read_bytes())
    archive = Path(tempfile.gettempdir()) / f"{name}-{digest.hexdigest()[:12]}.tar"
    with one_at_a_time(archive):
        if not archive.exists():
            building = archive.with_suffix(f".{os.getpid()}")
            run(sys.executable, "-m", "virtplane.guest.build", *options, building, seconds=240, cwd=ROOT)
            building.replace(archive)
    return archive


@contextmanager
def one_at_a_time(made: Path) -> Iterator[None]:
    """Workers that run tests side by side make what they share once."""
    with made.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def debian_image(whole_machine: None) -> Path:
    """The Debian disk. Building takes a minute, so it is kept until its sources change."""
    command = (sys.executable, "-m", "virtplane.cli.main", "image", "build", "debian")
    state = Path(tempfile.gettempdir()) / "virtplane-e2e-debian"
    begun = time.monotonic()
    with starvation_measured() as starvation:
        image = Path(run(*command, "--state", state, seconds=600, cwd=ROOT).stdout.strip())
    assert time.monotonic() - begun < _DEBIAN_SECONDS * starvation.factor
    return image


@pytest.fixture(scope="session")
def cluster(guest_archive: Path, pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """A cluster with virtplane on it and the demo guest's image in it, for the long modules.

    With ``VIRTPLANE_TEST_STATE`` set, the cluster in that directory is used and left running.
    """
    borrowed = os.environ.get("VIRTPLANE_TEST_STATE")
    if borrowed:
        lent = Cluster(Path(borrowed))
        lent.up()
        lent.load(guest_archive)
        yield lent
        return
    made = Cluster(Path(tempfile.mkdtemp(prefix="virtplane-e2e-")))
    with ExitStack() as removal:
        pytestconfig.stash[REMOVAL] = removal
        removal.callback(made.reset)
        made.up()
        made.load(guest_archive)
        yield made


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Remove the cluster behind the last long module: at rest it takes processor time, too."""
    removal = item.config.stash.get(REMOVAL, None)
    if removal is not None and nextitem is not None and is_short(nextitem):
        removal.close()


@pytest.fixture
def new_machine(cluster: Cluster) -> Iterator[Callable[..., Machine]]:
    """Creates virtual machines that are deleted after the test."""
    made: list[Machine] = []

    def create(name: str, *, grace: int = 1, **wishes: str) -> Machine:
        machine = cluster.create(manifest(name, grace=grace, **wishes))
        made.append(machine)
        return machine

    yield create
    clean_up(made)


@pytest.fixture
def claims(cluster: Cluster) -> Iterator[Claims]:
    """Claims that are deleted after the test."""
    made = Claims(cluster)
    yield made
    made.remove()


def clean_up(machines: list[Machine]) -> None:
    """Delete machines at once and wait until they are gone."""
    for machine in machines:
        if machine.cluster.find(machine._vm_path) is not None:
            machine.delete()
    for machine in machines:
        machine.wait_gone()
