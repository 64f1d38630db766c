"""CSI volumes of a pod are undone one by one: shared handles, calls that fail, damaged records."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.kindling.node.simulated_csi_node import a_node

from kindling.node.volumes import csi_records


async def test_two_volumes_of_one_handle_are_unstaged_once(tmp_path: Path) -> None:
    """Staged places are the handle's: another volume object of the same handle uses the same one."""
    async with a_node(tmp_path) as make:
        node = make()
        csi = node._csi
        node.pods = {"a": "v", "b": "v"}
        await node.publish("a", "v")
        await node.publish("b", "v", "other")
        await csi.unpublish("a")
        assert set(node.driver.staged) == {"v"}
        await csi.unpublish("b")
        assert (node.driver.staged, node.driver.wrong) == ({}, [])


async def test_a_volume_that_cannot_be_undone_does_not_keep_others(tmp_path: Path) -> None:
    async with a_node(tmp_path) as make:
        node = make()
        csi = node._csi
        node.pods = {"a": "v", "b": "w"}
        await node.publish("a", "v")
        await node.publish("a", "w")
        node.driver.failing = 1
        with pytest.raises(OSError, match=r"volume v: rpc error: .* too late"):
            await csi.unpublish("a")
        assert set(node.driver.staged) == {"v"}
        await csi.unpublish("a")
        assert node.driver.staged == {}


async def test_a_record_that_cannot_be_read_is_named_and_nothing_is_removed(tmp_path: Path) -> None:
    async with a_node(tmp_path) as make:
        node = make()
        node.pods = {"a": "v"}
        await node.publish("a", "v")
        record = csi_records.read(csi_records.files_of_pod("a")[0])
        record.file.write_bytes(b"{")
        with pytest.raises(OSError, match=r"vol_data\.json is not a valid record of a CSI volume"):
            await node._volumes.clean_up("a")
        assert (record.target / "data").exists()


async def test_a_damaged_record_keeps_no_other_volume_from_being_undone(tmp_path: Path) -> None:
    async with a_node(tmp_path) as make:
        node = make()
        csi = node._csi
        node.pods = {"a": "v", "b": "w", "c": "x"}
        for uid, name in (("a", "v"), ("a", "w"), ("b", "v"), ("b", "x")):
            await node.publish(uid, name)
        damaged = next(file for file in csi_records.files_of_pod("a") if file.parent.name == "v")
        damaged.write_bytes(b"[]")

        with pytest.raises(
            OSError, match=r"^volume v: .*vol_data\.json is not a valid record of a CSI volume"
        ):
            await csi.unpublish("a")
        await csi.unpublish("b")
        # Whether pod a still uses v is not known: it stays staged.
        assert set(node.driver.staged) == {"v"}
