"""One pool for the tests of a module: making it is what takes time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.xfspool import xfs_pool


@pytest.fixture(scope="module")
def pool_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A mounted XFS."""
    if os.geteuid() != 0:
        pytest.skip("mounts and loop devices need root")
    with xfs_pool(tmp_path_factory.mktemp("hostpath")) as pool:
        yield pool


@pytest.fixture
def folder(pool_disk: Path, request: pytest.FixtureRequest) -> Path:
    """A folder for one test's pool."""
    folder = pool_disk / f"{abs(hash(request.node.nodeid)):x}"
    folder.mkdir()
    return folder
