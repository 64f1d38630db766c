"""Contents of volumes and how they are put down."""

from __future__ import annotations

import asyncio
import base64
import threading
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from kindling.node.pods import identity
from kindling.node.pods.downward_api import NodeFacts
from kindling.node.volumes import content, host_path, loop_devices, manager
from kindling.node.volumes.atomic_writer import File, write_payload
from kindling.node.volumes.content import Allowance, ContentProblem, Materials, Token
from kindling.node.volumes.manager import VolumeManager

POD: dict[str, Any] = {
    "metadata": {"name": "p", "labels": {"l": "m"}},
    "spec": {"containers": [{"name": "c"}]},
}
NODE = NodeFacts("n", ("10.64.0.11",), {})


def materials(**values: Any) -> Materials:
    return Materials(values.pop("pod", POD), NODE, **values)


def payload(volume: dict[str, Any], found: Materials) -> dict[str, File]:
    return content.payload(volume, found, Allowance())


def test_a_config_map_shows_all_or_chosen_keys() -> None:
    maps = {"m": {"data": {"a": "1", "b": "2"}, "binaryData": {"z": base64.b64encode(b"\0").decode()}}}
    everything = payload({"configMap": {"name": "m"}}, materials(config_maps=maps))
    assert everything == {"a": File(b"1", 0o644), "b": File(b"2", 0o644), "z": File(b"\0", 0o644)}
    volume = {"configMap": {"name": "m", "items": [{"key": "a", "path": "d/x", "mode": 0o400}]}}
    assert payload(volume, materials(config_maps=maps)) == {"d/x": File(b"1", 0o400)}


def test_missing_objects_are_named_unless_optional() -> None:
    with pytest.raises(ContentProblem, match='secret "s" not found'):
        payload({"secret": {"secretName": "s"}}, materials())
    assert payload({"secret": {"secretName": "s", "optional": True}}, materials()) == {}


@pytest.mark.parametrize("path", ["/etc/cron.d/x", "../x", "a/../../x", "..data", "..data/x", ""])
def test_contents_stay_in_their_volume_whatever_the_api_let_through(path: str) -> None:
    """The agent writes as root: what a path says is looked at here as well."""
    maps = {"m": {"data": {"key": "1", path: "2"}}}
    volume = {"configMap": {"name": "m", "items": [{"key": "key", "path": path}]}}
    for wanted in (volume, {"configMap": {"name": "m"}}):
        with pytest.raises(ContentProblem, match="must be relative, inside the volume"):
            payload(wanted, materials(config_maps=maps))


def test_one_long_key_under_many_paths_does_not_take_the_nodes_memory() -> None:
    secrets = {"s": {"data": {"k": base64.b64encode(b"x" * 1_000_000).decode()}}}
    items = [{"key": "k", "path": f"p{n}"} for n in range(100)]
    volume = {"secret": {"secretName": "s", "items": items}}
    with pytest.raises(ContentProblem, match="take more than"):
        payload(volume, materials(secrets=secrets))
    # Nor through one path that many sources write, or in several volumes.
    sources = [{"secret": {"name": "s"}}] * 100
    with pytest.raises(ContentProblem, match="take more than"):
        payload({"projected": {"sources": sources}}, materials(secrets=secrets))
    allowance = Allowance()
    few = {"secret": {"secretName": "s", "items": items[:50]}}
    assert len(content.payload(few, materials(secrets=secrets), allowance)) == 50
    with pytest.raises(ContentProblem, match="take more than"):
        content.payload(few, materials(secrets=secrets), allowance)


def test_empty_files_count_as_well() -> None:
    items = [{"key": "k", "path": f"p{n}"} for n in range(20_000)]
    volume = {"configMap": {"name": "m", "items": items}}
    with pytest.raises(ContentProblem, match="take more than"):
        payload(volume, materials(config_maps={"m": {"data": {"k": ""}}}))


def test_directories_count_as_well() -> None:
    items = [{"key": "k", "path": f"p{n}/" + "d/" * 60 + "f"} for n in range(500)]
    found = materials(config_maps={"m": {"data": {"k": ""}}})
    assert len(payload({"configMap": {"name": "m", "items": items[:200]}}, found)) == 200
    with pytest.raises(ContentProblem, match="take more than"):
        payload({"configMap": {"name": "m", "items": items}}, found)


def test_a_file_below_directories_without_end_is_refused() -> None:
    items = [{"key": "k", "path": "d/" * 1900 + "f"}]
    with pytest.raises(ContentProblem, match="is below more than 64 directories"):
        payload(
            {"configMap": {"name": "m", "items": items}}, materials(config_maps={"m": {"data": {"k": ""}}})
        )


async def test_the_agent_serves_others_while_it_writes_a_volume_of_many_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "ROOT", tmp_path)
    served = threading.Event()

    def slowly(directory: Path, files: dict[str, File], group: int | None) -> bool:
        assert served.wait(30), "nobody else is served"
        return write_payload(directory, files, group)

    monkeypatch.setattr(manager, "write_payload", slowly)
    found = materials(config_maps={"m": {"data": {"a": "1"}}})
    volumes = VolumeManager(Mock(materials=AsyncMock(return_value=found)))
    pod = {**POD, "metadata": {"uid": "u"}, "spec": {"volumes": [{"name": "v", "configMap": {"name": "m"}}]}}
    asyncio.get_running_loop().call_later(0.01, served.set)
    prepared = await volumes.prepare(pod)
    assert (prepared["v"].path / "a").read_text() == "1"


def test_keys_that_are_not_chosen_are_not_decoded() -> None:
    volume = {"secret": {"secretName": "s", "items": [{"key": "k", "path": "k"}]}}
    found = payload(volume, materials(secrets={"s": {"data": {"k": "MQ==", "other": "a"}}}))
    assert found == {"k": File(b"1", 0o644)}


def test_a_payload_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    """It is tried again for as long as the pod exists."""
    for name in ("a/b", "x" * 300):
        with pytest.raises(OSError, match=r"exists|too long"):
            write_payload(tmp_path, {"a": File(b"1", 0o644), name: File(b"2", 0o644)})
    assert list(tmp_path.iterdir()) == []


def test_data_that_is_no_base64_is_a_problem_of_the_volume() -> None:
    with pytest.raises(ContentProblem, match="cannot be read"):
        payload({"secret": {"secretName": "s"}}, materials(secrets={"s": {"data": {"k": "a"}}}))


def test_a_token_is_readable_by_the_pods_user_only() -> None:
    volume = {
        "projected": {"sources": [{"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}}]}
    }
    assert content.token_requests(volume) == {("", 3607)}
    tokens = {("", 3607): Token("t", 1.0, 1.0)}
    assert payload(volume, materials(tokens=tokens))["token"].mode == 0o644
    owned = {**POD, "spec": {"containers": [{"name": "c", "securityContext": {"runAsUser": 107}}]}}
    file = payload(volume, materials(pod=owned, tokens=tokens))["token"]
    assert (file.mode, file.uid) == (0o600, 107)


def test_downward_files_show_labels() -> None:
    volume = {"downwardAPI": {"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}}]}}
    assert payload(volume, materials())["l"].content == b'l="m"'


def test_an_update_replaces_everything_through_one_link(tmp_path: Path) -> None:
    assert write_payload(tmp_path, {"a": File(b"1", 0o644), "d/b": File(b"2", 0o600)})
    first = (tmp_path / "..data").readlink()
    assert (tmp_path / "d" / "b").read_bytes() == b"2"
    assert not write_payload(tmp_path, {"a": File(b"1", 0o644), "d/b": File(b"2", 0o600)})
    assert write_payload(tmp_path, {"a": File(b"3", 0o644)})
    assert (tmp_path / "a").read_bytes() == b"3"
    assert (tmp_path / "..data").readlink() != first
    assert sorted(item.name for item in tmp_path.iterdir() if not item.name.startswith("..20")) == [
        "..data",
        "a",
    ]


@pytest.mark.parametrize("leads", ["{}/kept", "../kept", "..", "..gone"])
def test_an_update_removes_nothing_outside_the_volume_whatever_the_link_said(
    tmp_path: Path, leads: str
) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/file").write_text("x")
    volume = tmp_path / "volume"
    volume.mkdir()
    (volume / "..data").symlink_to(leads.format(tmp_path))
    assert write_payload(volume, {"a": File(b"1", 0o644)})
    assert (volume / "a").read_bytes() == b"1"
    assert (tmp_path / "kept/file").exists()


def test_host_paths_are_made_or_checked_by_type(tmp_path: Path) -> None:
    host_path.check(tmp_path / "made", "DirectoryOrCreate")
    assert (tmp_path / "made").is_dir()
    with pytest.raises(ContentProblem, match="is not a file"):
        host_path.check(tmp_path / "made", "File")
    host_path.check(tmp_path / "never", "")


async def test_a_loop_device_stays_while_another_pods_volume_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "ROOT", tmp_path)
    let_go: list[str] = []

    async def detach(device: Path) -> None:
        let_go.append(str(device))

    monkeypatch.setattr(loop_devices, "detach", detach)
    for uid, device in (("a", "/dev/loop7"), ("b", "/dev/loop7"), ("b", "/dev/loop8"), ("b", "/dev/sda")):
        link = tmp_path / "pods" / uid / "volumeDevices/kubernetes.io~local-volume" / Path(device).name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(device)
    volumes = VolumeManager(Mock())
    await volumes.clean_up("a")
    assert let_go == []
    await volumes.clean_up("b")
    assert sorted(let_go) == ["/dev/loop7", "/dev/loop8"]
    assert list((tmp_path / "pods").iterdir()) == []
