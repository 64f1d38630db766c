"""How much CDI's components log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest
from tests.support.managers import keep_running, working

from kubecore.json import JsonObject
from kubecore.logs import TRACE, LogLevels
from kubecore.objects.structs import decode
from kubecore.runtime import Manager
from kubecore.testing import MemoryApi
from virtplane.api.cdi_v1beta1.cdi import CDI
from virtplane.api.resources import CDIS
from virtplane.components import CDI_COMPONENTS
from virtplane.operators.cdi.verbosity import follow, verbosity_of

_FLAGS = {"flags": {"api": {"v": "5"}, "uploadProxy": {"v": "much", "port": "1"}}}


@pytest.fixture(autouse=True)
def root() -> Iterator[None]:
    level = logging.getLogger().level
    yield
    logging.getLogger().setLevel(level)


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({}, (1, 1, 1)),
        ({"config": {"logVerbosity": 0}}, (0, 0, 0)),
        ({"customizeComponents": _FLAGS}, (5, 1, 1)),
        ({"customizeComponents": _FLAGS, "config": {"logVerbosity": 3}}, (5, 3, 3)),
    ],
)
def test_flags_say_more_than_the_configuration(spec: JsonObject, wanted: tuple[int, ...]) -> None:
    cdi = decode(CDI, {"spec": spec})
    assert tuple(verbosity_of(name, cdi, 1) for name in CDI_COMPONENTS) == wanted


async def test_components_of_a_shared_process_follow_the_object() -> None:
    api, changed = MemoryApi([CDIS], whole=[CDIS]), asyncio.Event()

    class Told(LogLevels):
        def set(self, component: str, level: int) -> None:
            super().set(component, level)
            changed.set()

    levels = Told("virt-operator", logging.INFO)
    async with api.client() as client, asyncio.timeout(5):
        manager = Manager(client)
        follow(manager, CDI_COMPONENTS, levels, 1)
        keep_running(manager)
        async with working(manager):
            found = []
            for change in (
                lambda: api.put(CDIS, {"metadata": {"name": "cdi"}, "spec": {"customizeComponents": _FLAGS}}),
                lambda: api.put(CDIS, {"metadata": {"name": "cdi"}, "spec": {"config": {"logVerbosity": 9}}}),
                lambda: api.remove(CDIS, "cdi"),
            ):
                changed.clear()
                change()
                await changed.wait()
                found.append((levels.of("cdi-apiserver"), levels.of("cdi-deployment")))
    assert found == [(logging.DEBUG, logging.INFO), (TRACE, TRACE), (logging.INFO, logging.INFO)]
