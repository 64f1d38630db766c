"""Shared by all rings of tests: the `feature` marker reaches the JUnit report."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Record every feature ID that a test carries as a property of its JUnit entry."""
    for item in items:
        for marker in item.iter_markers("feature"):
            for feature_id in marker.args:
                item.user_properties.append(("feature", feature_id))
