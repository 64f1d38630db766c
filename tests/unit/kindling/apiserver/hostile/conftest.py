"""One server under attack, and its neighbour, for each module of attacks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.support.hostile import Target, under_attack

REQUEST_SECONDS = 3.0
"""The server's patience with slow senders, shortened."""


@pytest.fixture(autouse=True)
def _figures(target: Target, record_property: Callable[[str, object], None]) -> Iterator[None]:
    """Record what an attack did to the neighbour and to the server's memory."""
    already = len(target.measured)
    yield
    for measured in target.measured[already:]:
        record_property("attack", str(measured))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def target(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Target]:
    folder: Path = tmp_path_factory.mktemp("hostile")
    async with under_attack(folder, f"--request-timeout={REQUEST_SECONDS}") as made:
        yield made
