"""When the node's kernel merges equal pages, and how fast."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubecore.json import JsonObject
from kubecore.resources import NODES
from kubecore.testing import MemoryApi
from virtplane.api.config import ClusterConfig
from virtplane.compute.handler.node.ksm import KernelKsm, Ksm, KsmKeeper, Tuning, plan, tuning

GIB = 1 << 20
"""In KiB."""
PREFIX = "kubevirt.io/ksm-"


@pytest.mark.parametrize(
    ("now", "available", "then"),
    [
        # Enough memory: it stays off, slows down, and ends below the least.
        (Ksm(False, 100, 100), 16, Ksm(False, 100, 200)),
        (Ksm(True, 500, 100), 16, Ksm(True, 450, 200)),
        (Ksm(True, 100, 100), 16, Ksm(False, 64, 200)),
        # Too little: it begins, speeds up, and has a limit.
        (Ksm(False, 7, 100), 2, Ksm(True, 100, 72)),
        (Ksm(True, 100, 100), 2, Ksm(True, 400, 72)),
        (Ksm(True, 1200, 100), 2, Ksm(True, 1250, 72)),
    ],
)
def test_pages_are_merged_while_less_than_a_fifth_of_the_memory_is_available(
    now: Ksm, available: int, then: Ksm
) -> None:
    assert plan(now, 24 * GIB, available * GIB, Tuning()) == then


def test_a_large_node_never_rests_shorter_than_a_tenth_of_the_baseline() -> None:
    assert plan(Ksm(True, 100, 100), 4096 * GIB, GIB, Tuning()).rest_milliseconds == 10


def test_annotations_of_the_node_override_the_defaults() -> None:
    found = tuning(
        {
            f"{PREFIX}pages-boost-override": "1",
            f"{PREFIX}pages-decay-override": "-2",
            f"{PREFIX}pages-min-override": "3",
            f"{PREFIX}pages-max-override": "4",
            f"{PREFIX}pages-init-override": "5",
            f"{PREFIX}sleep-ms-baseline-override": "6",
            f"{PREFIX}free-percent-override": "0.7",
        }
    )
    assert found == Tuning(1, -2, 3, 4, 5, 6, 0.7)


@pytest.mark.parametrize("text", ["", "much", "2", "-1"])
def test_overrides_that_make_no_sense_do_not_count(text: str) -> None:
    assert tuning({f"{PREFIX}free-percent-override": text}).free == 0.2
    assert tuning({f"{PREFIX}pages-max-override": "many"}).most == 1250


class Node:
    """A node with little memory left, and its kernel's files."""

    def __init__(self, folder: Path) -> None:
        self.api = MemoryApi()
        self.api.put(NODES, {"metadata": {"name": "node01", "labels": {"dense": "yes"}}})
        self.folder = folder
        for name, value in (("run", 0), ("pages_to_scan", 100), ("sleep_millisecs", 20)):
            (folder / name).write_text(str(value))
        (folder / "meminfo").write_text("MemTotal: 1000 kB\nMemAvailable: 100 kB\n")
        self.selector: JsonObject | None = {"matchLabels": {"dense": "yes"}}
        self.keeper = KsmKeeper(
            self.api.client(), "node01", self.config, KernelKsm(folder, folder / "meminfo")
        )

    def config(self) -> ClusterConfig:
        wanted = (
            {"ksmConfiguration": {"nodeLabelSelector": self.selector}} if self.selector is not None else {}
        )
        return ClusterConfig({"status": {"phase": "Deployed"}, "spec": {"configuration": wanted}})

    def run(self) -> str:
        return (self.folder / "run").read_text()

    def told(self) -> tuple[str | None, str | None]:
        metadata = (self.api.get(NODES, "node01") or {})["metadata"]
        return (
            metadata["labels"].get(f"{PREFIX}enabled"),
            metadata.get("annotations", {}).get(f"{PREFIX}handler-managed"),
        )


async def test_chosen_nodes_merge_pages_and_say_so_until_they_are_not_chosen(tmp_path: Path) -> None:
    node = Node(tmp_path)
    await node.keeper.keep()
    assert (node.run(), node.told()) == ("1", ("true", "true"))
    node.selector = None
    await node.keeper.keep()
    assert (node.run(), node.told()) == ("0", ("false", "false"))


async def test_an_empty_selector_chooses_every_node(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.selector = {}
    await node.keeper.keep()
    assert node.run() == "1"


async def test_nodes_that_nobody_chose_are_left_alone(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.selector = {"matchLabels": {"dense": "no"}}
    (tmp_path / "run").write_text("2")
    await node.keeper.keep()
    assert (node.run(), node.told()) == ("2", (None, None))


async def test_a_node_that_is_as_it_should_be_is_not_written(tmp_path: Path) -> None:
    node = Node(tmp_path)
    await node.keeper.keep()
    before = len([request for request in node.api.requests if request.method == "PATCH"])
    await node.keeper.keep()
    assert len([request for request in node.api.requests if request.method == "PATCH"]) == before == 1
