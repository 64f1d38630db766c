"""Whose process is behind a launcher's socket."""

from __future__ import annotations

import errno
import os
import resource
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from virtplane.compute.handler.launchers.process import ForeignProcess, Process, peer_process, pods_of

POD = str(uuid.uuid4())
"""Another one each time: its cgroup is the machine's."""
OTHER = "ffffffff-0000-1111-2222-333344445555"
_LISTEN = """
import os, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print(os.getpid(), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    "cgroups",
    [
        f"0::/kubepods/burstable/pod{POD}/abc\n",
        f"12:memory:/kindling/n1/kubepods/pod{POD}/abc\n3:cpu:/\n0::/\n",
        f"0::/../../kubepods-besteffort-pod{POD.replace('-', '_')}.slice/cri-containerd-x.scope\n",
        f"0::/kubepods.slice/kubepods-pod{POD.replace('-', '_')}.slice/crio-x.scope\n",
    ],
    ids=["cgroupfs", "version 1", "other namespace", "systemd"],
)
def test_pod_is_read_from_its_cgroup(cgroups: str) -> None:
    assert pods_of(cgroups) == {POD}


@pytest.mark.parametrize("name", ["/", f"/xpod{OTHER}", f"/pod{OTHER}x", "/pod", f"/{OTHER}", "/a:b/c"])
def test_other_cgroups_name_no_pod(name: str) -> None:
    assert pods_of(f"0::{name}\n") == set()


@contextmanager
def listening(path: Path, *before: str) -> Iterator[subprocess.Popen[str]]:
    """A process that listens; `before` is a command that runs it."""
    command = [*before, sys.executable, "-S", "-c", _LISTEN, str(path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None and process.stdin is not None
        process.stdout.readline()
        yield process
        process.stdin.close()
        process.wait()


@contextmanager
def connected(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(path))
        yield peer


def test_process_is_known_by_descriptors(tmp_path: Path) -> None:
    with listening(tmp_path / "s") as listener, connected(tmp_path / "s") as peer:
        process: Process = peer_process(peer, "")
        assert process.pid == listener.pid and process.is_alive
        with process.root() as root:
            assert root.is_folder("/proc/self") or root.is_folder("/usr")
        namespace = process.network()
        assert os.fstat(namespace).st_ino == Path(f"/proc/{listener.pid}/ns/net").stat().st_ino
        os.close(namespace)
        listener.send_signal(signal.SIGKILL)
        listener.wait()
        assert not process.is_alive
        process.close()


def test_closed_process_gives_nothing_away(tmp_path: Path) -> None:
    with listening(tmp_path / "s"), connected(tmp_path / "s") as peer:
        process = peer_process(peer, "")
        process.close()
        process.close()
        for ask in (process.root, process.network):
            with pytest.raises(ProcessLookupError):
                ask()


def test_number_of_an_ended_process_is_not_looked_up_again(tmp_path: Path) -> None:
    with listening(tmp_path / "s") as listener, connected(tmp_path / "s") as peer:
        listener.send_signal(signal.SIGKILL)
        listener.wait()
        with pytest.raises(ProcessLookupError, match="has ended"):
            peer_process(peer, "")


def test_lack_of_descriptors_is_not_taken_for_the_end_of_a_process(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with listening(tmp_path / "s"), connected(tmp_path / "s") as peer:
        lowest_free = os.dup(0)
        os.close(lowest_free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, limits[1]))
        try:
            with pytest.raises(OSError) as failure:
                peer_process(peer, "")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert failure.value.errno == errno.EMFILE


def test_process_of_another_cgroup_is_refused_and_leaves_nothing_open(tmp_path: Path) -> None:
    with listening(tmp_path / "s"), connected(tmp_path / "s") as peer:
        before = sorted(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names are all that counts
        with pytest.raises(ForeignProcess, match=f"does not belong to pod {POD}"):
            peer_process(peer, POD)
        assert sorted(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A cgroup that is named like the pod's."""
    places = [Path("/sys/fs/cgroup", each) for each in ("pids", "cpu", ".")]
    hierarchy = next((each for each in places if (each / "cgroup.procs").exists()), None)
    if os.geteuid() != 0 or hierarchy is None:
        pytest.skip("needs root and cgroups")
    group = hierarchy / f"pod{POD}"
    group.mkdir()
    yield group
    group.rmdir()


@pytest.mark.host
def test_process_of_the_pod_is_taken(cgroup: Path, tmp_path: Path) -> None:
    with listening(tmp_path / "s", "unshare", "--net") as listener, connected(tmp_path / "s") as peer:
        (cgroup / "cgroup.procs").write_text(str(listener.pid))
        process = peer_process(peer, POD)
        assert process.pid == listener.pid
        process.close()
        with pytest.raises(ForeignProcess, match=f"its cgroup is that of {POD}"):
            peer_process(peer, OTHER)


@pytest.mark.host
def test_process_on_the_nodes_network_is_refused(cgroup: Path, tmp_path: Path) -> None:
    with listening(tmp_path / "s") as listener, connected(tmp_path / "s") as peer:
        (cgroup / "cgroup.procs").write_text(str(listener.pid))
        with pytest.raises(ForeignProcess, match="shares the node's network"):
            peer_process(peer, POD)
