"""What a node says of its resources."""

from __future__ import annotations

from pathlib import Path

from kindling.node.registration import advertised, machine_resources


def test_resources_that_administrators_advertise_are_kept() -> None:
    capacity = {"cpu": "2", "example.com/dongle": "4", "example.com/thing": "1", "node.kubernetes.io/x": "1"}
    node = {"status": {"capacity": capacity}}
    assert advertised(node, {"example.com/thing": (2, 2)}) == {"example.com/dongle": "4"}


def test_all_that_is_advertised_can_be_allocated_and_of_devices_the_healthy_ones(tmp_path: Path) -> None:
    capacity, allocatable = machine_resources(
        tmp_path, {"example.com/thing": (2, 1)}, {"example.com/dongle": "4"}
    )
    assert (capacity["example.com/dongle"], allocatable["example.com/dongle"]) == ("4", "4")
    assert (capacity["example.com/thing"], allocatable["example.com/thing"]) == ("2", "1")
