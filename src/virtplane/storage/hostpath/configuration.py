"""What the driver is started with: its name, its node and its storage pools."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import msgspec

REFLINK = "reflink"
"""The only snapshot provider."""

STATE_DIRECTORY = ".virtplane"
"""In a pool: records, images and snapshots. Names of volumes do not begin with a dot."""

FULL_PERCENT = 2
"""A pool of which less than this is left is full."""

_NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")


class BadConfiguration(Exception):
    """The driver cannot run with these arguments."""


class PoolInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An entry of ``--datadir``. `shared` pools are the same folder on every node.

    A `claimed` pool is on a claim, and is no pool as long as that is not mounted at its path: what was
    written there would be on the system's disk, and hidden as soon as the claim is mounted.
    """

    name: str
    path: str
    snapshot_path: str | None = None
    snapshot_provider: str | None = None
    shared: bool = False
    claimed: bool = False

    @property
    def folder(self) -> Path:
        """The pool's folder; paths are relative to the root of the driver's container."""
        return Path("/") / self.path

    @property
    def snapshots(self) -> Path | None:
        """Where snapshots are; None where the pool has none."""
        if self.snapshot_path is not None:
            return Path("/") / self.snapshot_path
        return self.folder / STATE_DIRECTORY / "snapshots" if self.snapshot_provider else None


@dataclass(frozen=True, slots=True)
class Configuration:
    """The driver's settings. The first pool is the one of inline volumes that name none."""

    driver_name: str
    node: str
    endpoint: str
    version: str
    pools: tuple[PoolInfo, ...]


def configuration(driver_name: str, node: str, endpoint: str, version: str, pools: str) -> Configuration:
    """The settings in the driver's arguments; `pools` is JSON. Raises BadConfiguration."""
    if not driver_name:
        raise BadConfiguration("no driver name provided")
    if not node:
        raise BadConfiguration("no node id provided")
    if not endpoint:
        raise BadConfiguration("no driver endpoint provided")
    if not version:
        raise BadConfiguration("no version provided")
    if not _NODE_NAME.fullmatch(node):
        raise BadConfiguration(f"node id {node!r} is not the name of a node")
    try:
        found = msgspec.json.decode(pools, type=list[PoolInfo])
    except msgspec.DecodeError as error:
        raise BadConfiguration("unable to parse storage pool info") from error
    by_name = {pool.name: pool for pool in found}
    for pool in by_name.values():
        if pool.snapshot_provider is not None and pool.snapshot_provider != REFLINK:
            raise BadConfiguration(
                f"Unsupported snapshot provider {pool.snapshot_provider} for storage pool {pool.name}"
            )
    return Configuration(driver_name, node, endpoint, version, tuple(by_name.values()))
