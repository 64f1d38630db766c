"""The seccomp profile of servers of shared folders, as runc and the kernel apply it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.waiting import until

import virtplane
from virtplane.compute.handler import component
from virtplane.compute.handler.node import seccomp
from virtplane.compute.handler.settings import HandlerSettings

USER = 107
PYTHON = Path(sys.executable).resolve()
SOURCE = Path(virtplane.__file__).parents[1]
SERVER = Path("/usr/lib/qemu/virtiofsd")

_SERVER = """
import sys
sys.path.insert(0, "/source")
sys.argv = ["virtiofsd", "--socket-path=/sockets/files.sock", "--shared-dir=/shared", "--sandbox=none"]
from virtplane.compute.launcher import virtiofsd
sys.exit(virtiofsd.main())
"""

_PROBE = """
import ctypes, errno, os, socket
kernel = ctypes.CDLL(None, use_errno=True)
def outcome(result):
    return "done" if result >= 0 else errno.errorcode[ctypes.get_errno()]
def opens(family):
    try:
        socket.socket(family, socket.SOCK_DGRAM).close()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"
child = os.fork()
if not child:
    os._exit(0)
os.waitpid(child, 0)
print("mount namespace", outcome(kernel.unshare(0x00020000)))
print("user and network namespace", outcome(kernel.unshare(0x10000000 | 0x40000000)))
print("user namespace", outcome(kernel.unshare(0x10000000)))
print("network namespace of the user's", outcome(kernel.unshare(0x40000000)))
print("mount", outcome(kernel.mount(b"none", b"/tmp", b"tmpfs", 0, None)))
print("clone3", outcome(kernel.syscall(435, None, 0)))
print("keys", outcome(kernel.syscall(250, 0, -3, 0)))
print("internet", opens(socket.AF_INET))
print("netlink", opens(socket.AF_NETLINK))
print("unix", opens(socket.AF_UNIX))
"""


class Containers:
    """Containers of a user without privileges, under the profile that a node's file has."""

    def __init__(self, folder: Path, profile: Path) -> None:
        self.folder = folder
        self._profile = json.loads(profile.read_bytes())
        self._name = f"virtplane-test-{uuid.uuid4().hex[:8]}"
        root = folder / "rootfs"
        for name in ("usr", "proc", "dev", "tmp", "source", "shared", "sockets"):
            (root / name).mkdir(parents=True)
        for name in ("bin", "lib", "lib64"):
            (root / name).symlink_to(f"usr/{name}")
        for name in ("shared", "sockets"):
            (folder / name).mkdir()
            os.chown(folder / name, USER, USER)

    def start(self, program: str) -> subprocess.Popen[str]:
        binds = {"/usr": Path("/usr"), "/source": SOURCE}
        binds |= {f"/{name}": self.folder / name for name in ("shared", "sockets")}
        document = {
            "ociVersion": "1.0.2",
            "process": {
                "args": [str(PYTHON), "-S", "-c", program],
                "cwd": "/",
                "user": {"uid": USER, "gid": USER, "additionalGids": [USER]},
                "noNewPrivileges": True,
                "capabilities": {},
            },
            "root": {"path": "rootfs"},
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
                *({"destination": at, "source": str(of), "options": ["bind"]} for at, of in binds.items()),
            ],
            "linux": {
                "namespaces": [{"type": each} for each in ("pid", "ipc", "uts", "mount", "network")],
                "seccomp": self._profile,
            },
        }
        (self.folder / "config.json").write_text(json.dumps(document))
        command = self._runc("run", "--bundle", str(self.folder), self._name)
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def pid(self) -> int:
        """The first process of the running container."""
        found = subprocess.run(self._runc("state", self._name), check=True, capture_output=True)
        return int(json.loads(found.stdout)["pid"])

    def remove(self) -> None:
        subprocess.run(self._runc("delete", "--force", self._name), check=False, capture_output=True)

    def _runc(self, *arguments: str) -> list[str]:
        return ["runc", "--root", str(self.folder / "runc"), *arguments]


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The profile where a kubelet looks for it."""
    seccomp.install(HandlerSettings("n", kubelet_root=tmp_path))
    return tmp_path / "seccomp/kubevirt/virtiofs.json"


@pytest.fixture
def containers(installed: Path) -> Iterator[Containers]:
    if os.geteuid() != 0 or shutil.which("runc") is None or PYTHON.parts[1] != "usr":
        pytest.skip("needs root, runc and the distribution's Python")
    # The containers' user has to reach it, which rules out pytest's own folders.
    with tempfile.TemporaryDirectory(prefix="virtplane-seccomp-") as made:
        Path(made).chmod(0o755)
        started = Containers(Path(made), installed)
        try:
            yield started
        finally:
            started.remove()


def test_the_profile_is_replaced_as_a_whole_and_is_roots_alone(installed: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    installed.write_text("{")
    seccomp.install(HandlerSettings("n", kubelet_root=tmp_path))
    found = installed.stat()
    assert json.loads(installed.read_bytes()) == seccomp.profile()
    assert (found.st_uid, stat.S_IMODE(found.st_mode) & 0o007) == (0, 0)
    assert list(installed.parent.iterdir()) == [installed]


async def test_without_the_profile_a_node_lacks_shared_folders_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    await component._install_profile(HandlerSettings("n", kubelet_root=tmp_path / "file"))
    assert "guests with shared folders do not start on this node" in caplog.text


@pytest.mark.host
async def test_the_server_confines_itself_to_the_shared_folder(containers: Containers) -> None:
    if not SERVER.exists():
        pytest.skip("needs QEMU's virtiofsd")
    server = containers.start(_SERVER)
    path = containers.folder / "sockets/files.sock"
    await until(lambda: path.exists() or server.poll() is not None)
    with socket.socket(socket.AF_UNIX) as guest:
        # Its socket is there a moment before it listens. It confines itself once its only client is there.
        await until(lambda: guest.connect_ex(str(path)) == 0 or server.poll() is not None)
        process = Path("/proc", str(containers.pid()))
        await until(lambda: (process / "root").readlink() == Path("/shared"))
        await until(lambda: int(_status(process)["CapBnd"], 16) == 0)  # the last that it gives up
        status = _status(process)
        assert (process / "uid_map").read_text().split() == ["0", str(USER), "1"]
        assert status["Uid"].split() == [str(USER)] * 4
        assert status["Groups"].split() == [str(USER)]
    _, told = server.communicate(timeout=10)
    assert "virtio_loop: Exit" in told


def _status(process: Path) -> dict[str, str]:
    return dict(line.split(":\t", 1) for line in (process / "status").read_text().splitlines())


@pytest.mark.host
def test_root_of_the_user_namespace_gets_nothing_else(containers: Containers) -> None:
    told, errors = containers.start(_PROBE).communicate(timeout=20)
    assert errors == ""
    assert told.splitlines() == [
        "mount namespace EPERM",
        "user and network namespace EPERM",
        "user namespace done",
        "network namespace of the user's EPERM",
        "mount EPERM",
        "clone3 ENOSYS",
        "keys EPERM",
        "internet EPERM",
        "netlink EPERM",
        "unix done",
    ]
