"""Shared by all rings of tests: the `feature` marker reaches the JUnit report."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import hypothesis
import pytest
from tests.support.order import piece_of_work, sort
from xdist.scheduler import LoadScopeScheduling

pytest_plugins = ["tests.support.clusters", "tests.support.moto_server"]

# Hypothesis fails examples that take longer than 200 ms: on a busy machine that says nothing about the code.
hypothesis.settings.register_profile("without-deadline", deadline=None)
hypothesis.settings.load_profile("without-deadline")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long modules first; every feature ID that a test carries is a property of its JUnit entry."""
    sort(items)
    for item in items:
        for marker in item.iter_markers("feature"):
            for feature_id in marker.args:
                item.user_properties.append(("feature", feature_id))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling:
    """Hand out pieces of work: whole modules, mostly."""
    scheduler = LoadScopeScheduling(config, log)
    scheduler._split_scope = piece_of_work
    return scheduler


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """Programs and libraries set up logging for their process; here all later tests would be in it."""
    root = logging.getLogger()
    level = root.level
    yield
    root.setLevel(level)
    # pytest's own are of subclasses; a plain one goes on writing to where this test's output was caught.
    root.handlers[:] = [each for each in root.handlers if type(each) is not logging.StreamHandler]


@pytest.fixture(scope="session", autouse=True)
def _owned_event_loop() -> Iterator[None]:
    """pytest-asyncio asks for the current loop before it makes its own; that one needs an owner."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()
