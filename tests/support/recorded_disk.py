"""A record of everything written below a directory, and what a power cut at any moment would leave of it.

SQLite's own system calls are seen by a VFS that stands in front of its usual one, Python's by replacing the
few functions of ``os`` and ``pathlib`` that the storage uses. The model is the pessimistic one: a write
that was not followed by fsync of its file may be on the disk, or not, or any of its sectors may be; names
(new, renamed, removed ones) arrive in order, and surely once their directory was synced.
"""

from __future__ import annotations

import _sqlite3
import ctypes
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int, c_int64, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

_SECTOR = 512

_Open = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_int, c_void_p)
"""The name is passed on as the pointer it is: SQLite keeps it."""
_Delete = CFUNCTYPE(c_int, c_void_p, c_char_p, c_int)
_Write = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)
_Truncate = CFUNCTYPE(c_int, c_void_p, c_int64)
_Sync = CFUNCTYPE(c_int, c_void_p, c_int)
_METHODS = "close read write truncate sync size lock unlock reserved control sector traits"
_METHODS += " shm_map shm_lock shm_barrier shm_unmap fetch unfetch"
_CALLS = "open delete access full_path dl_open dl_error dl_sym dl_close randomness sleep time last_error"
_CALLS += " time64 set_call get_call next_call"


class _Methods(ctypes.Structure):
    """sqlite3_io_methods, version 3."""

    _fields_ = [("version", c_int), *((name, c_void_p) for name in _METHODS.split())]


class _Vfs(ctypes.Structure):
    """sqlite3_vfs, version 3."""

    _fields_ = [
        ("version", c_int),
        ("file_size", c_int),
        ("max_path", c_int),
        ("next", c_void_p),
        ("name", c_char_p),
        ("data", c_void_p),
        *((name, c_void_p) for name in _CALLS.split()),
    ]


@dataclass(frozen=True, slots=True)
class Operation:
    """What happened to the file `name`: create, write, truncate, sync, rename, unlink, sync_names or ack.

    `at` is an offset or a size; `data` what was written, the new name, or what a note is about.
    """

    kind: str
    name: str = ""
    at: int = 0
    data: Any = b""


class Recorder:
    """Collects operations below `directory`. `fail` may say which fail: (kind, name) -> SQLite's code."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.operations: list[Operation] = []
        self.fail: Callable[[str, str], int] = lambda *_: 0
        self._names: dict[int, str] = {}
        self._kept: list[object] = []
        """What C code points to."""

    def note(self, data: object) -> None:
        """Remember at which moment something was acknowledged."""
        self.operations.append(Operation("ack", data=data))

    def _name(self, path: str | Path) -> str:
        path = Path(path)
        return path.name if path.parent == self.directory and not path.name.endswith("-shm") else ""

    def _record(self, kind: str, name: str, at: int = 0, data: Any = b"") -> None:
        if name:
            self.operations.append(Operation(kind, name, at, data))

    @contextmanager
    def recording(self, patch: pytest.MonkeyPatch) -> Iterator[None]:
        """Record what connections do that are opened in the block, and what Python does in it."""
        self._patch_python(patch)
        library = ctypes.CDLL(_sqlite3.__file__)
        library.sqlite3_vfs_find.restype = POINTER(_Vfs)
        library.sqlite3_vfs_find.argtypes = [c_char_p]
        for name in ("sqlite3_vfs_register", "sqlite3_vfs_unregister"):
            getattr(library, name).argtypes = [POINTER(_Vfs), c_int][: 2 if name.endswith("_register") else 1]
        usual = library.sqlite3_vfs_find(None)
        vfs = self._vfs(usual)
        assert library.sqlite3_vfs_register(ctypes.byref(vfs), 1) == 0
        try:
            yield
        finally:
            library.sqlite3_vfs_unregister(ctypes.byref(vfs))
            library.sqlite3_vfs_register(usual, 1)
            patch.undo()

    # --- SQLite

    def _vfs(self, usual: Any) -> _Vfs:
        vfs = _Vfs()
        ctypes.pointer(vfs)[0] = usual.contents
        vfs.name = b"recorded"
        open_usual, delete_usual = _Open(usual.contents.open), _Delete(usual.contents.delete)

        def opened(_: int, pointer: int | None, file: int, flags: int, out: int) -> int:
            path = Path(ctypes.string_at(pointer).decode()) if pointer else Path()
            is_new = not path.exists()
            code = open_usual(ctypes.addressof(usual.contents), pointer, file, flags, out)
            name = self._name(path)
            if code == 0 and name:
                if is_new:
                    self._record("create", name)
                self._names[file] = name
                self._wrap(file)
            return int(code)

        def deleted(_: int, path: bytes, sync: int) -> int:
            if Path(path.decode()).exists():
                self._record("unlink", self._name(path.decode()))
            code = delete_usual(ctypes.addressof(usual.contents), path, sync)
            if sync:
                self._record("sync_names", ".")
            return int(code)

        self._kept += [vfs, callback_open := _Open(opened), callback_delete := _Delete(deleted)]
        vfs.open = ctypes.cast(callback_open, c_void_p)
        vfs.delete = ctypes.cast(callback_delete, c_void_p)
        return vfs

    def _wrap(self, file: int) -> None:
        """Put recording methods in front of an open file's."""
        pointer = ctypes.cast(file, POINTER(POINTER(_Methods)))
        usual, methods = pointer[0].contents, _Methods()
        ctypes.pointer(methods)[0] = usual
        write, truncate, sync = _Write(usual.write), _Truncate(usual.truncate), _Sync(usual.sync)

        def attempt(kind: str, file: int, action: Callable[[], int], at: int = 0, data: bytes = b"") -> int:
            name = self._names[file]
            code = self.fail(kind, name)
            if code:
                return code
            self._record(kind, name, at, data)
            if kind == "sync" and name.endswith(("-wal", "-journal")):
                # SQLite syncs the directory with the first sync of a log that it made.
                self._record("sync_names", ".")
            return action()

        callbacks = {
            "write": _Write(
                lambda file, data, size, at: attempt(
                    "write", file, lambda: write(file, data, size, at), at, ctypes.string_at(data, size)
                )
            ),
            "truncate": _Truncate(
                lambda file, size: attempt("truncate", file, lambda: truncate(file, size), size)
            ),
            "sync": _Sync(lambda file, flags: attempt("sync", file, lambda: sync(file, flags))),
        }
        for name, callback in callbacks.items():
            setattr(methods, name, ctypes.cast(callback, c_void_p))
        self._kept += [methods, *callbacks.values()]
        pointer[0] = ctypes.pointer(methods)

    # --- Python

    def _patch_python(self, patch: pytest.MonkeyPatch) -> None:
        opened, synced, written = os.open, os.fsync, os.pwrite
        unlink, moved = Path.unlink, Path.replace

        def path_of(descriptor: int) -> Path:
            return Path(f"/proc/self/fd/{descriptor}").readlink()

        def open_file(path: Any, flags: int, *rest: Any, **options: Any) -> int:
            if flags & os.O_CREAT and not Path(path).exists():
                self._record("create", self._name(path))
            return opened(path, flags, *rest, **options)

        def sync(descriptor: int) -> None:
            path = path_of(descriptor)
            is_names = path == self.directory
            self._record("sync_names" if is_names else "sync", "." if is_names else self._name(path))
            synced(descriptor)

        def write(descriptor: int, data: bytes, at: int) -> int:
            self._record("write", self._name(path_of(descriptor)), at, bytes(data))
            return written(descriptor, data, at)

        def remove(path: Path, missing_ok: bool = False) -> None:
            if path.exists():
                self._record("unlink", self._name(path))
            unlink(path, missing_ok=missing_ok)

        def move(path: Path, target: Path) -> Path:
            if path.exists():
                self._record("rename", self._name(path), data=Path(target).name)
            return moved(path, target)

        patch.setattr(os, "open", open_file)
        patch.setattr(os, "fsync", sync)
        patch.setattr(os, "pwrite", write)
        patch.setattr(os, "fdopen", lambda descriptor, *_: _Stream(descriptor))
        patch.setattr(Path, "unlink", remove)
        patch.setattr(Path, "replace", move)
        patch.setattr(Path, "rename", move)


class _Stream:
    """A new file that is written from its beginning, unbuffered."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._at = descriptor, 0

    def write(self, data: bytes) -> None:
        """Append."""
        self._at += os.pwrite(self._descriptor, data, self._at)

    def close(self) -> None:
        """Done."""
        os.close(self._descriptor)

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Inode:
    """The content of one file: what the disk holds surely, and what was written since."""

    def __init__(self) -> None:
        self.safe = bytearray()
        self.pending: list[Operation] = []

    def copy(self) -> _Inode:
        twin = _Inode()
        twin.safe, twin.pending = bytearray(self.safe), list(self.pending)
        return twin

    def sync(self) -> None:
        for operation in self.pending:
            _apply(self.safe, operation)
        self.pending.clear()


class Disk:
    """Replays operations; `leave` writes what a power cut now would leave."""

    def __init__(self) -> None:
        self._inodes: dict[str, _Inode] = {}
        """By name as the running system sees them."""
        self._surely: dict[str, _Inode] = {}
        """Names that the disk holds."""
        self._names: list[Operation] = []
        """Changes of names since."""
        self._made: dict[int, _Inode] = {}

    def replay(self, operation: Operation) -> None:
        """Let one more operation happen."""
        kind, name = operation.kind, operation.name
        if kind in ("create", "rename", "unlink"):
            if kind == "create":
                self._made[id(operation)] = _Inode()
            self._names.append(operation)
            self._rename(self._inodes, operation)
        elif kind == "sync_names":
            for change in self._names:
                self._rename(self._surely, change)
            self._names.clear()
        elif kind == "sync":
            self._inodes[name].sync()
        elif kind in ("write", "truncate"):
            self._inodes[name].pending.append(operation)

    def _rename(self, names: dict[str, _Inode], operation: Operation) -> None:
        if operation.kind == "create":
            names[operation.name] = self._made[id(operation)]
            return
        inode = names.pop(operation.name)
        if operation.kind == "rename":
            names[operation.data] = inode

    def leave(self, directory: Path, lost: Callable[[], str], chance: random.Random) -> None:
        """Write the files as they might be found. `lost` tells of a write: kept, lost or torn."""
        names = dict(self._surely)
        for change in self._names:
            if lost() != "kept":
                break
            self._rename(names, change)
        for name, inode in names.items():
            content = bytearray(inode.safe)
            for operation in inode.pending:
                fate = lost()
                if fate == "kept":
                    _apply(content, operation)
                elif fate == "torn" and operation.kind == "write":
                    for part in _sectors(operation):
                        if chance.random() < 0.5:
                            _apply(content, part)
            (directory / name).write_bytes(content)


def _apply(content: bytearray, operation: Operation) -> None:
    if operation.kind == "truncate":
        del content[operation.at :]
        return
    if len(content) < operation.at:
        content.extend(bytes(operation.at - len(content)))
    content[operation.at : operation.at + len(operation.data)] = operation.data


def _sectors(operation: Operation) -> Iterator[Operation]:
    position, end = operation.at, operation.at + len(operation.data)
    while position < end:
        stop = min(end, (position // _SECTOR + 1) * _SECTOR)
        data = operation.data[position - operation.at : stop - operation.at]
        yield Operation("write", operation.name, position, data)
        position = stop
