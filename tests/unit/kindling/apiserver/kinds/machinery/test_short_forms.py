"""Short forms of ages, selectors and modes in tables."""

from __future__ import annotations

import pytest

from kindling.apiserver.kinds.machinery.printing import (
    access_modes,
    format_labels,
    format_selector,
    human_duration,
    since,
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (185, "3m5s"),
        (600, "10m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 600, "3h10m"),
        (9 * 3600, "9h"),
        (3 * 86400, "3d"),
        (3 * 86400 + 3600, "3d1h"),
        (100 * 86400, "100d"),
        (800 * 86400, "2y70d"),
        (4000 * 86400, "10y"),
    ],
)
def test_durations_are_told_in_the_units_that_matter(seconds: int, text: str) -> None:
    assert human_duration(seconds) == text


def test_ages_selectors_and_modes_have_short_forms() -> None:
    assert since("") == "<unknown>"
    assert since("nonsense") == "<unknown>"
    assert format_labels({}) == "<none>"
    assert format_selector(None) == "<none>"
    selector = {
        "matchLabels": {"b": "1"},
        "matchExpressions": [
            {"key": "a", "operator": "In", "values": ["y", "x"]},
            {"key": "c", "operator": "DoesNotExist"},
            {"key": "d", "operator": "Exists"},
        ],
    }
    assert format_selector(selector) == "a in (x,y),b=1,!c,d"
    assert access_modes(["ReadWriteMany", "ReadWriteOnce"]) == "RWO,RWX"
