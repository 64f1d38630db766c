"""What the pages tell users to type works as it stands there, in that order, on a machine with no cluster."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.e2e.clusters import Cluster, Machine
from tests.e2e.commands import ROOT, attempt, run
from tests.e2e.support import open_console
from tests.support.pages import PAGES, Section, sections

from virtplane.guest import oci

pytestmark = [
    pytest.mark.host,
    pytest.mark.guest,
    pytest.mark.timeout(600),
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed"),
]

_DEFAULT_STATE = "/var/lib/virtplane"
_STARTS_A_CLUSTER = ("./virtplane up", "./virtplane demo")
_ELSEWHERE = ("./virtplane test", "load --debian", "load --guestfs", "image build debian")
"""The tests, of which this is one, and what takes long and other tests try."""


def tried(section: Section) -> list[str]:
    """The commands of a section that are tried here."""
    return [command for command in section.commands if not any(each in command for each in _ELSEWHERE)]


def starts_a_cluster(section: Section) -> bool:
    """Whether a section is for a machine with no cluster; the others suppose one."""
    return tried(section)[0].startswith(_STARTS_A_CLUSTER)


def title(section: Section) -> str:
    """The name of a section's test."""
    return f"{section.page}: {section.heading}"


_SECONDS = 300
_SECTIONS = [section for page in PAGES for section in sections(page) if tried(section)]
_WITHOUT_CLUSTER = [section for section in _SECTIONS if starts_a_cluster(section)]
_ON_A_CLUSTER = [section for section in _SECTIONS if not starts_a_cluster(section)]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with the files that pages name."""
    disk = tmp_path / "debian-12.qcow2"
    run("qemu-img", "create", "-f", "qcow2", disk, "16M")
    oci.write_archive(disk, tmp_path / "app.tar", "registry.example.com/app:1")
    return tmp_path


@contextmanager
def no_cluster() -> Iterator[Cluster]:
    """A directory for a cluster's state that does not exist yet."""
    folder = Path(tempfile.mkdtemp(prefix="virtplane-readme-"))
    cluster = Cluster(folder / "state")
    try:
        yield cluster
    finally:
        if cluster.state.exists():
            cluster.reset()
        folder.rmdir()


@pytest.fixture
def fresh(whole_machine: None) -> Iterator[Cluster]:
    """No cluster."""
    with no_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def started(whole_machine: None) -> Iterator[Cluster]:
    """A cluster as ``./virtplane up`` makes it; one section follows another on it."""
    with no_cluster() as cluster:
        cluster.up()
        yield cluster


@pytest.mark.parametrize("section", _WITHOUT_CLUSTER, ids=title)
def test_what_a_page_tells_to_type_works(section: Section, fresh: Cluster, home: Path) -> None:
    type_all(section, fresh, home)


@pytest.mark.parametrize("section", _ON_A_CLUSTER, ids=title)
def test_what_a_page_tells_to_type_on_a_cluster_works(section: Section, started: Cluster, home: Path) -> None:
    type_all(section, started, home)


def type_all(section: Section, cluster: Cluster, home: Path) -> None:
    """Run all commands of a section."""
    # The one thing that is not as it stands there: a machine may have a cluster in the usual place.
    environment = {**os.environ, "VIRTPLANE_STATE": str(cluster.state), "HOME": str(home)}
    environment.pop("KUBECONFIG", None)
    if not any(command.startswith("export ") for command in section.commands):
        environment["KUBECONFIG"] = str(cluster.state / "kubeconfig")
    for command in tried(section):
        words = shlex.split(command.replace(_DEFAULT_STATE, str(cluster.state)))
        if words[0] == "export":
            name, _, value = words[1].partition("=")
            environment[name] = value
        elif words[:2] == [".venv/bin/virtctl", "console"]:
            assert environment["KUBECONFIG"] == str(cluster.state / "kubeconfig")
            look_at_console(Machine(cluster, words[2]))
        else:
            done = attempt("sh", "-c", command, seconds=_SECONDS, cwd=ROOT, env=environment)
            assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
            assert "Traceback" not in done.stderr


def look_at_console(machine: Machine) -> None:
    """Log in as the banner says, and leave with the key that the README names."""
    deadline = time.monotonic() + 60
    with open_console(machine) as console:
        console.log_in(deadline - time.monotonic())
        assert console.run("hostname") == machine.name
        assert console.leave() == 0
