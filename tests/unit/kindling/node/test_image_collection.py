"""Removing unused images: which, how many, and never one that is in use."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from kindling.node.images import collector
from kindling.node.images.collector import ImageCollector, Record, candidates, excess, observed, references_of
from kindling.node.options import NodeOptions
from kindling.node.runtime.interface import Container, ContainerState, Image
from kindling.node.stats.disk import FileSystem


def image(name: str, size: int = 10, **more: Any) -> Image:
    return Image(name, (f"docker.io/library/{name}:latest",), (), size, **more)


def test_those_unused_for_longest_go_first_then_those_here_for_longest() -> None:
    images = [image("a"), image("b"), image("c"), image("d")]
    records = {"a": Record(5, 90), "b": Record(9), "c": Record(7), "d": Record(0, 50)}
    found = candidates(images, set(), records, 1000, 120)
    assert [each.id for each in found] == ["c", "b", "d", "a"]


def test_what_is_used_pinned_built_in_or_new_stays() -> None:
    images = [
        image("used"),
        image("pinned", pinned=True),
        Image("own", ("kindling.local/host:latest",), (), 9),
        image("new"),
        Image("by-digest", (), ("docker.io/library/x@sha256:1",), 9),
    ]
    records = {each.id: Record(0) for each in images} | {"new": Record(950)}
    used = {"docker.io/library/used:latest", "docker.io/library/x@sha256:1"}
    assert candidates(images, used, records, 1000, 120) == []


def test_the_last_use_is_remembered() -> None:
    images = [image("a"), image("b")]
    first = observed({}, images, {"a"}, 10)
    assert first == {"a": Record(10, 10), "b": Record(10)}
    assert observed(first, [images[0]], set(), 20) == {"a": Record(10, 10)}


def test_disks_are_freed_down_to_the_low_threshold_once_they_are_above_the_high_one() -> None:
    def system(available: int) -> FileSystem:
        return FileSystem(1000, 0, available, 0, 0)

    assert [excess(system(available), 85, 80) for available in (151, 150, 50, 1000)] == [0, 50, 150, 0]
    assert excess(FileSystem(0, 0, 0, 0, 0), 85, 80) == 0


def test_images_of_pods_and_of_their_volumes_are_in_use() -> None:
    spec = {
        "containers": [{"image": "busybox"}, {"image": "NOT VALID"}],
        "initContainers": [{"image": "quay.io/a/b:1"}],
        "volumes": [{"name": "v", "image": {"reference": "models"}}, {"name": "w", "emptyDir": {}}],
    }
    names = {"docker.io/library/busybox:latest", "quay.io/a/b:1", "docker.io/library/models:latest"}
    assert references_of({"spec": spec}) == names


class Runtime:
    """A runtime with images on a disk of 1000 bytes."""

    def __init__(self, *images: Image, running: str = "") -> None:
        self.images = list(images)
        self.running = running

    async def list_images(self) -> list[Image]:
        return list(self.images)

    async def list_containers(self) -> list[Container]:
        made = Container("id", "s", "c", 0, ContainerState.RUNNING, 0, image_ref=self.running)
        return [made] if self.running else []

    async def image_file_system(self) -> tuple[Path, int, int]:
        return Path("/"), 0, 0

    async def remove_image(self, name: str) -> None:
        self.images = [each for each in self.images if each.id != name]


@pytest.fixture
def available(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    left = [1000]
    monkeypatch.setattr(collector, "file_system", lambda _: FileSystem(1000, 0, left[0], 0, 0))
    return left


async def test_only_as_much_as_needed_is_removed(available: list[int], tmp_path: Path) -> None:
    runtime: Any = Runtime(image("a", 40), image("b", 40), image("c", 40), running="a")
    events: list[str] = []
    now = [10.0]
    found = ImageCollector(
        runtime,
        NodeOptions(image_gc_high=85, image_gc_low=80),
        lambda: [],
        lambda reason, _: events.append(reason),
        tmp_path / "none",
        lambda: now[0],
    )
    await found.collect()
    now[0] = 1000
    available[0] = 149
    runtime.running = ""
    await found.collect()
    assert [each.id for each in runtime.images] == ["a"], "51 bytes, of those never used first"
    assert events == []
    available[0] = 0
    await found.collect()
    assert runtime.images == [] and events == ["FreeDiskSpaceFailed"]


async def test_a_pod_that_waits_for_its_image_keeps_it(tmp_path: Path) -> None:
    runtime: Any = Runtime(image("a"), image("b"))
    pods = [{"spec": {"containers": [{"image": "a"}]}}]
    await ImageCollector(runtime, NodeOptions(), lambda: pods, Mock(), tmp_path / "none").remove_unused()
    assert [each.id for each in runtime.images] == ["a"]


async def test_an_image_that_no_registry_has_stays(tmp_path: Path) -> None:
    runtime: Any = Runtime(image("a"), image("b"))
    (tmp_path / "loaded").write_text(f"{runtime.images[1].tags[0]}\n")
    await ImageCollector(runtime, NodeOptions(), list, Mock(), tmp_path / "loaded").remove_unused()
    assert [each.id for each in runtime.images] == ["b"]
