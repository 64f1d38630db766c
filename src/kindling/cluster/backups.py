"""``kindling backup`` and ``restore``: the API server's database, with the keys and addresses of the cluster.

Besides all objects, a backup holds the certificate authorities and token keys (so that kubeconfigs, service
account tokens and node certificates stay valid) and the addresses that the cluster chose (so that stored
services, pods and kubeconfigs still point to it). Data that pods and guests wrote to disks is not part of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import orjson

from kindling import program
from kindling.apiserver.storage import backup as storage
from kindling.apiserver.storage import files
from kindling.apiserver.storage.backup import Attachment, Backup, Restored
from kindling.apiserver.storage.journal import StorageError
from kindling.cluster import instance as instances
from kindling.cluster import node_places, processes, state_directory, supervision, supervisor
from kindling.cluster.errors import SetupError
from kindling.cluster.instance import Instance

_LAYOUT = "instance.json"
_TOKEN = "token"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a restore."""

    backup: Backup
    restored: Restored
    instance: Instance
    keys_replaced: bool
    """Whether other keys were in place: what they signed is not accepted any more."""


def database(state: Path) -> Path:
    """The path of the API server's database."""
    return state / processes.DATABASE


def take(instance: Instance, target: Path) -> Backup:
    """Write a backup of the cluster, running or not, to the new file `target`. Raises SetupError."""
    try:
        return storage.take(database(instance.state), target, _attachments(instance))
    except StorageError as error:
        raise SetupError("backup", str(error)) from error


def _attachments(instance: Instance) -> dict[str, Attachment]:
    paths = [instance.state / _LAYOUT, instance.state / _TOKEN]
    paths += sorted(path for path in instance.pki.iterdir() if path.is_file())
    return {
        str(path.relative_to(instance.state)): Attachment(path.read_bytes(), path.stat().st_mode & 0o777)
        for path in paths
    }


def restore(state: Path, source: Path) -> Outcome:
    """Replace the data of the cluster in `state` by a backup, or create the cluster from it. Raises
    SetupError.

    Every replaced file is kept in its directory, with ``replaced`` in its name.
    """
    state = state.resolve()
    existing = instances.load(state)
    if existing is not None:
        _refuse_running(existing)
    replaced = False

    def place(stamp: str) -> None:
        nonlocal replaced
        replaced = _place_keys(backup.attachments, state, stamp)
        layout.save()

    try:
        backup = storage.read(source)
        layout = adopted(backup.attachments, state, existing)
        state_directory.make_directory(state)
        restored = storage.restore(source, database(state), place)
    except StorageError as error:
        raise SetupError("restore", str(error)) from error
    return Outcome(backup, restored, layout, replaced)


def _refuse_running(instance: Instance) -> None:
    running = supervisor.find_children(instance.id, processes.specs(instance))
    if supervision.supervisor_pid(instance) or running:
        raise SetupError(
            "restore", f"the cluster in {instance.state} runs", program.command("down", instance.state)
        )


def adopted(attachments: Mapping[str, Attachment], state: Path, existing: Instance | None) -> Instance:
    """The layout after a restore: the addresses of the backup, but the directory and options of the present
    cluster.

    Raises StorageError if the backup is not of a cluster.
    """
    if _LAYOUT not in attachments:
        raise StorageError("the backup is not of a cluster: it holds no instance.json")
    document = orjson.loads(attachments[_LAYOUT].content)
    document |= {"state": state, "id": instances.instance_id(state)}
    for name in instances.TUPLES:
        document[name] = tuple(document.get(name, ()))
    layout = Instance(**document)
    if existing is None:
        return layout
    # Keep at least as many nodes as this cluster has: it would not clean up the directories and pods of
    # others.
    return replace(
        existing,
        subnet=layout.subnet,
        subnet6=layout.subnet6,
        api_port=layout.api_port,
        node_names=node_places.merged(existing.node_names, layout.node_names),
    )


def _place_keys(attachments: Mapping[str, Attachment], state: Path, stamp: str) -> bool:
    """Write certificates, keys and the token to their places, after renaming the present ones; returns
    whether there were any that differ.
    """
    wanted = {state / name: item for name, item in attachments.items() if name != _LAYOUT}
    pki = state / "pki"
    present = [path for path in (*pki.glob("*"), state / _TOKEN) if path.is_file()]
    same = all(path in wanted and path.read_bytes() == wanted[path].content for path in present)
    if same and len(present) == len(wanted):
        return False
    for path in (pki, state / _TOKEN):
        if path.exists():
            path.rename(path.with_name(f"{path.name}.replaced-{stamp}"))
    pki.mkdir(mode=0o700)
    for path, item in wanted.items():
        files.write_durably(path, item.content, item.mode)
    files.sync_directory(state)
    return not same
