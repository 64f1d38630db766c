"""Adds a cluster to its administrator's own kubeconfig, and takes it out again.

With sudo the file is that of the user who called it, and is read and written with that user's rights: links
in a home directory lead root nowhere.
"""

from __future__ import annotations

import contextlib
import os
import pwd
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
import yaml

from kindling.cluster.errors import ExitCode, SetupError
from kindling.cluster.instance import Instance, write_atomically

_SECTIONS = ("clusters", "users", "contexts")
_RECORD = "merged-kubeconfigs"
"""In the state directory: user and path of each kubeconfig that the cluster was added to."""


def name_of(instance: Instance) -> str:
    """The name of the instance's context."""
    return f"kindling-{instance.id}"


def merge(instance: Instance) -> Path:
    """Put cluster, user and context into the caller's kubeconfig, and make the context the current one.

    Entries of these names are replaced, all others stay. Returns the file's path. Raises SetupError.
    """
    user = int(os.environ.get("SUDO_UID", os.geteuid()))
    path = _own_path(user)
    _record(instance, user, path)
    own = orjson.loads(instance.kubeconfig.read_bytes())
    with _acting_as(user):
        merged = _without(_read(path), name_of(instance))
        for section in _SECTIONS:
            merged[section] = [*(merged.get(section) or []), *own[section]]
        merged["current-context"] = own["current-context"]
        _write(path, merged)
    return path


def unmerge(instance: Instance) -> list[str]:
    """Take the instance out of the kubeconfigs that it was added to; returns what could not be done."""
    failures = []
    for user, path in _recorded(instance):
        try:
            with _acting_as(user):
                found = _read(path)
                left = _without(found, name_of(instance))
                if left != found:
                    _write(path, left)
        except (SetupError, OSError) as error:
            failures.append(f"the context {name_of(instance)} stays in {path}: {error}")
    return failures


def refresh(instance: Instance) -> None:
    """Put the present certificates into the kubeconfigs that the instance was added to. Raises SetupError."""
    own = {
        section: {entry["name"]: entry for entry in entries}
        for section, entries in orjson.loads(instance.kubeconfig.read_bytes()).items()
        if section in _SECTIONS
    }
    for user, path in _recorded(instance):
        with _acting_as(user):
            found = _read(path)
            fresh = dict(found)
            for section in _SECTIONS:
                fresh[section] = [own[section].get(_name(entry), entry) for entry in found.get(section) or []]
            if fresh != found:
                _write(path, fresh)


def _own_path(user: int) -> Path:
    """Where kubectl looks first: the first file of KUBECONFIG, else the one in the home directory."""
    first = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    if first:
        return Path(first).absolute()
    try:
        home = pwd.getpwuid(user).pw_dir
    except KeyError as error:
        what = f"user {user}"
        raise SetupError(what, "has no home directory", "set KUBECONFIG", code=ExitCode.UNUSABLE) from error
    return Path(home) / ".kube/config"


def _read(path: Path) -> dict[str, Any]:
    try:
        document = yaml.load(path.read_bytes(), Loader=yaml.CSafeLoader)
    except FileNotFoundError:
        document = None
    except yaml.YAMLError as error:
        raise SetupError(f"kubeconfig {path}", f"it is no YAML: {error}") from error
    if document is None:
        return {"apiVersion": "v1", "kind": "Config", "clusters": [], "users": [], "contexts": []}
    sections = (
        [document.get(section) or [] for section in _SECTIONS] if isinstance(document, dict) else [None]
    )
    if not all(isinstance(section, list) for section in sections):
        raise SetupError(f"kubeconfig {path}", "it has not the form of a kubeconfig, so it stays as it is")
    kubeconfig: dict[str, Any] = document
    return kubeconfig


def _write(path: Path, document: Mapping[str, Any]) -> None:
    path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    # Where the file is a link (as some keep it elsewhere), what it leads to is replaced.
    write_atomically(path.resolve(), yaml.safe_dump(dict(document), sort_keys=False).encode(), 0o600)


def _without(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The kubeconfig without the cluster, context and users of an instance."""
    left = dict(document)
    for section in _SECTIONS:
        entries = document.get(section) or []
        kept = [entry for entry in entries if not f"{_name(entry)}-".startswith(f"{name}-")]
        left[section] = kept
    if document.get("current-context") == name:
        left["current-context"] = ""
    return left


def _name(entry: object) -> str:
    return str(entry.get("name", "")) if isinstance(entry, dict) else ""


def _record(instance: Instance, user: int, path: Path) -> None:
    known = [f"{each} {at}" for each, at in _recorded(instance)]
    lines = list(dict.fromkeys([*known, f"{user} {path}"]))
    write_atomically(instance.state / _RECORD, ("\n".join(lines) + "\n").encode(), 0o600)


def _recorded(instance: Instance) -> list[tuple[int, Path]]:
    try:
        lines = (instance.state / _RECORD).read_text().splitlines()
    except FileNotFoundError:
        return []
    found = [line.partition(" ") for line in lines]
    return [(int(user), Path(path)) for user, _, path in found]


@contextlib.contextmanager
def _acting_as(user: int) -> Iterator[None]:
    """Reads and writes files with the rights of `user`, who may be root. Raises SetupError."""
    before = os.geteuid(), os.getegid(), os.getgroups()
    if user == before[0]:
        yield
        return
    try:
        entry = pwd.getpwuid(user)
    except KeyError as error:
        raise SetupError(f"the kubeconfig of user {user}", "there is no such user any more") from error
    os.setgroups(os.getgrouplist(entry.pw_name, entry.pw_gid))
    os.setegid(entry.pw_gid)
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(before[0])
        os.setegid(before[1])
        os.setgroups(before[2])
