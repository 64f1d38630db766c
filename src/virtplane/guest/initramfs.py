"""The guest's root file system: a compressed cpio archive that the kernel unpacks into memory."""

from __future__ import annotations

import gzip
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

_PROGRAMS = (
    "bin/busybox",
    "usr/sbin/dropbear",
    "usr/bin/dropbearkey",
    "usr/lib/openssh/sftp-server",
    "usr/sbin/qemu-ga",
)
_SFTP_SERVER = "usr/lib/sftp-server"
"""Where dropbear looks for it; scp copies files by it."""

_LIBRARY_FOLDERS = ("lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu")
_MODE_DIRECTORY = 0o040755
_OWN_FILES = Path(__file__).parent / "rootfs"


class MissingPart(Exception):
    """A program, library or kernel that the guest needs is not in the packages."""


def build(tree: Path, root: Path, modules: Sequence[str]) -> bytes:
    """Assemble the root file system in `root` from the unpacked packages in `tree`; return it as cpio.gz.

    `modules` are the drivers that it loads; absent ones are built in.
    """
    for folder in ("bin", "dev", "etc/dropbear", "proc", "sys", "run", "tmp", "var/www", "root/.ssh", "mnt"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for program in _PROGRAMS:
        _copy_program(tree, root, program)
    (root / _SFTP_SERVER).parent.mkdir(parents=True, exist_ok=True)
    (root / _SFTP_SERVER).symlink_to("/bin/sftp-server")
    _copy_modules(tree, root, modules)
    for source in sorted(_OWN_FILES.rglob("*")):
        if source.is_file():
            target = root / source.relative_to(_OWN_FILES)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
            target.chmod(0o755 if source.read_bytes().startswith(b"#!") else 0o644)
    return gzip.compress(b"".join(_cpio(root)), compresslevel=6, mtime=0)


def kernel_of(tree: Path) -> Path:
    """The kernel image among the unpacked packages."""
    kernels = sorted((tree / "boot").glob("vmlinuz-*"))
    if not kernels:
        raise MissingPart("no boot/vmlinuz-* in the kernel package")
    return kernels[-1]


def _copy_program(tree: Path, root: Path, program: str) -> None:
    source = tree / program
    if not source.exists():
        source = tree / "usr" / program
    if not source.exists():
        raise MissingPart(f"{program} is in none of the packages")
    target = root / "bin" / source.name
    shutil.copyfile(source, target)
    target.chmod(0o755)
    _copy_libraries(tree, root, source)


def _copy_libraries(tree: Path, root: Path, program: Path) -> None:
    """Copy the shared libraries that `program` needs, directly or not, and the loader."""
    for name, library in _needed(tree, program).items():
        target = root / "lib/x86_64-linux-gnu" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(library, target)
        target.chmod(0o755)
        loader = root / "lib64" / name
        if name.startswith("ld-linux") and not loader.is_symlink():
            loader.parent.mkdir(exist_ok=True)
            loader.symlink_to(f"/lib/x86_64-linux-gnu/{name}")


def _needed(tree: Path, program: Path) -> dict[str, Path]:
    """File names and files of the libraries of `program`, as the packages' own loader resolves them."""
    folders = [tree / folder for folder in _LIBRARY_FOLDERS]
    loader = next((found for folder in folders for found in folder.glob("ld-linux-*.so.*")), None)
    if loader is None:
        raise MissingPart("the loader ld-linux is in none of the packages")
    found = subprocess.run(
        [str(loader), "--library-path", ":".join(map(str, folders)), "--list", str(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode != 0:
        return {}  # A static program.
    libraries = {loader.name: loader}
    for name, path in re.findall(r"^\s+(\S+) => (\S+) \(", found.stdout, re.MULTILINE):
        if not Path(path).is_relative_to(tree):
            raise MissingPart(f"the library {name} of {program.name} is in none of the packages")
        libraries[Path(name).name] = Path(path)
    if "not found" in found.stdout:
        raise MissingPart(f"{program.name} lacks libraries: {found.stdout.strip()}")
    return libraries


def _copy_modules(tree: Path, root: Path, modules: Sequence[str]) -> None:
    """Copy `modules` and their dependencies; ``/etc/modules`` lists them in loading order."""
    releases = sorted((tree / "lib/modules").glob("*")) or sorted((tree / "usr/lib/modules").glob("*"))
    if not releases:
        raise MissingPart("the kernel package has no modules")
    # Files are named by hyphens or underscores; the kernel and its tools take both for the same.
    found = releases[-1].rglob("*.ko*")
    available = {path.name.split(".ko")[0].replace("-", "_"): path for path in found}
    order: list[str] = []
    for name in modules:
        _order_module(available, name, order)
    folder = root / "lib/modules"
    folder.mkdir(parents=True, exist_ok=True)
    for name in order:
        shutil.copyfile(available[name], folder / available[name].name)
    lines = [f"/lib/modules/{available[name].name}\n" for name in order]
    (root / "etc/modules").write_text("".join(lines))


def _order_module(available: dict[str, Path], name: str, order: list[str]) -> None:
    if name in order or name not in available:
        return
    fields = subprocess.run(
        ["modinfo", "-F", "depends", str(available[name])], capture_output=True, text=True, check=True
    ).stdout.strip()
    for dependency in filter(None, fields.split(",")):
        _order_module(available, dependency.replace("-", "_"), order)
    order.append(name)


def _cpio(root: Path) -> Iterator[bytes]:
    """`root` in the "newc" format: sorted, owned by root, no times, so equal trees give equal bytes."""
    inode = 1
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            yield _entry(inode, name, 0o120777, str(path.readlink()).encode())
        elif path.is_dir():
            yield _entry(inode, name, _MODE_DIRECTORY, b"")
        else:
            yield _entry(inode, name, stat.S_IMODE(path.stat().st_mode) | 0o100000, path.read_bytes())
        inode += 1
    # The console must exist before devtmpfs is mounted, or init has no standard output.
    yield _entry(inode, "dev/console", 0o020600, b"", device=(5, 1))
    yield _entry(inode + 1, "TRAILER!!!", 0, b"")


def _entry(inode: int, name: str, mode: int, data: bytes, *, device: tuple[int, int] = (0, 0)) -> bytes:
    encoded = name.encode() + b"\0"
    fields = (inode, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(encoded), 0)
    header = b"070701" + b"".join(b"%08x" % field for field in fields) + encoded
    return header + b"\0" * (-len(header) % 4) + data + b"\0" * (-len(data) % 4)
