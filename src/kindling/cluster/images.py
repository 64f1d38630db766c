"""The images that every node has from the start, built on the machine itself: no registry, no download.

The *sandbox image* holds a static busybox that waits and reaps orphans, the *busybox image* the same program
under the names of all its commands, for pods that need a shell and little else. The *host image* holds
nothing but mount points, links and account files; the node agent binds the machine's own /usr, the Python
environment and parts of /etc into its containers (see ``kindling.node.images.host_image``).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from kindling.cluster.errors import SetupError
from kindling.cluster.image_names import BUSYBOX_IMAGE, HOST_IMAGE, SANDBOX_IMAGE
from kindling.cluster.oci import Layer, write_archive

_WAIT_AND_REAP = "while :; do sleep 86400; done"
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_PASSWD = """\
root:x:0:0:root:/root:/bin/sh
daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin
qemu:x:107:107:qemu:/var/lib/qemu:/usr/sbin/nologin
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
"""
_GROUP = "root:x:0:\ndaemon:x:1:\ntty:x:5:\ndisk:x:6:\nkvm:x:36:qemu\nqemu:x:107:\nnogroup:x:65534:\n"
_NSSWITCH = (
    "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nservices: files\nprotocols: files\n"
)
_SANDBOX_DIRECTORIES = [("bin", 0o755), ("dev", 0o755), ("etc", 0o755), ("proc", 0o755), ("sys", 0o755)]
_DIRECTORIES = (
    "dev etc etc/libvirt home mnt opt proc root run run/lock srv sys usr var var/cache var/lib "
    "var/lib/qemu var/log"
)


def build_images(directory: Path, *, host_image: bool = True) -> list[Path]:
    """Write the archives into `directory`; their paths. Raises SetupError without a static busybox."""
    directory.mkdir(parents=True, exist_ok=True)
    archives = [directory / "sandbox.tar"]
    config = {"Entrypoint": ["/bin/busybox", "sh", "-c", _WAIT_AND_REAP], "Env": ["PATH=/bin"]}
    write_archive(archives[0], SANDBOX_IMAGE, _sandbox_layer(), config)
    archives.append(directory / "busybox.tar")
    write_archive(archives[-1], BUSYBOX_IMAGE, _busybox_layer(), {"Cmd": ["sh"], "Env": ["PATH=/bin"]})
    if host_image:
        archives.append(directory / "host.tar")
        environment = [f"PATH={sys.prefix}/bin:{_SYSTEM_PATH}", "PYTHONDONTWRITEBYTECODE=1"]
        write_archive(archives[-1], HOST_IMAGE, _host_layer(), {"Env": environment, "WorkingDir": "/"})
    return archives


def _sandbox_layer() -> Layer:
    content = _busybox()
    return Layer(
        directories=_SANDBOX_DIRECTORIES,
        files={"bin/busybox": (content, 0o755)},
        links={"bin/sh": "busybox", "bin/sleep": "busybox"},
    )


def _busybox_layer() -> Layer:
    content = _busybox()
    listed = subprocess.run(["busybox", "--list"], capture_output=True, text=True, check=True)
    links = {f"bin/{name}": "busybox" for name in listed.stdout.split() if name != "busybox"}
    accounts = {
        "etc/passwd": (b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n", 0o644),
        "etc/group": (b"root:x:0:\nnogroup:x:65534:\n", 0o644),
    }
    return Layer(
        directories=[*_SANDBOX_DIRECTORIES, ("root", 0o700), ("tmp", 0o1777)],
        files={"bin/busybox": (content, 0o755), **accounts},
        links=links,
    )


def _busybox() -> bytes:
    """The machine's static busybox. Raises SetupError."""
    binary = shutil.which("busybox")
    if binary is None:
        raise SetupError("the sandbox image needs busybox", "not found in PATH", "apt install busybox-static")
    content = Path(binary).read_bytes()
    if b"ld-linux" in content[:4096]:
        raise SetupError(
            "the sandbox image needs a static busybox", f"{binary} is linked", "apt install busybox-static"
        )
    return content


def _host_layer() -> Layer:
    links = {"var/run": "../run", "var/lock": "../run/lock", "etc/mtab": "../proc/self/mounts"}
    directories = [(path, 0o755) for path in _DIRECTORIES.split()] + [("tmp", 0o1777), ("var/tmp", 0o1777)]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        host = Path("/") / name
        if host.is_symlink():
            links[name] = str(host.readlink())
        elif host.is_dir():
            directories.append((name, 0o755))
    files = {
        "etc/passwd": (_PASSWD.encode(), 0o644),
        "etc/group": (_GROUP.encode(), 0o644),
        "etc/nsswitch.conf": (_NSSWITCH.encode(), 0o644),
        "etc/os-release": (Path("/etc/os-release").read_bytes(), 0o644),
    }
    return Layer(directories, files, links)
