"""What guest agents say, and what is made of it when they lie."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virtplane.api.kubevirt_v1.vmi_status import VirtualMachineInstanceGuestOSInfo
from virtplane.compute.handler.libvirtd import agentanswers
from virtplane.compute.handler.libvirtd.agentanswers import AgentInterface

_KEYS = ["user.count", "user.0.name", "user.0.login-time", "os.name", "hostname", "timezone.name"]
_KEYS += ["timezone.offset"]
_MOUNT_KEYS = ["name", "mountpoint", "type", "total-bytes", "used-bytes", "disk"]
_ODD: list[Any] = [None, True, -1, 2**63, 0.5, float("nan"), "text", "", [], {}, b"bytes"]
_VALUES = st.sampled_from(_ODD)
_DETAILS = st.dictionaries(st.sampled_from(["hwaddr", "addrs"]), _VALUES) | _VALUES


def test_counts_are_not_believed() -> None:
    assert len(agentanswers.users({"user.count": 2**63})) == agentanswers.MOST


@pytest.mark.feature("CTL-09")
def test_a_file_system_tells_the_buses_of_its_disks() -> None:
    disks = [{"bus-type": "virtio", "dev": "/dev/vda2"}, {"bus-type": "sata", "serial": "s1"}]
    mount = {
        "name": "vda2",
        "mountpoint": "/",
        "type": "ext4",
        "total-bytes": 9,
        "used-bytes": 4,
        "disk": disks,
    }
    unknown = {"name": "loop0", "mountpoint": "/snap", "type": "squashfs", "disk": []}
    root, snap = agentanswers.filesystems(json.dumps({"return": [mount, unknown]}))
    assert root == {
        "diskName": "vda2",
        "mountPoint": "/",
        "fileSystemType": "ext4",
        "totalBytes": 9,
        "usedBytes": 4,
        "disk": [{"busType": "virtio"}, {"serial": "s1", "busType": "sata"}],
    }
    assert (snap["totalBytes"], "disk" in snap) == (0, False)


def test_file_systems_are_bounded() -> None:
    mount = {"name": "n" * 300, "disk": [{}] * 20}
    first, *others = agentanswers.filesystems(json.dumps({"return": [mount, *[{}] * 4000, 7]}))
    assert (len(first["diskName"]), len(first["disk"])) == (agentanswers.TEXT, 10)
    assert len(others) == agentanswers.MOST - 1


@pytest.mark.parametrize("answer", ["", "[", "7", "{}", '{"return": {"a": 1}}', '{"return": [1, null]}'])
def test_senseless_answer_names_no_file_systems(answer: str) -> None:
    assert agentanswers.filesystems(answer) == []


@given(mounts=st.lists(st.dictionaries(st.sampled_from(_MOUNT_KEYS), st.sampled_from(_ODD[:-1])), max_size=3))
def test_any_mounts_become_file_systems(mounts: list[dict[str, Any]]) -> None:
    found = agentanswers.filesystems(json.dumps({"return": mounts}))
    assert len(found) == len(mounts)
    assert json.dumps(found, allow_nan=False)


def test_texts_are_cut_before_they_reach_the_status() -> None:
    info = {"os.name": "x" * (100 << 20), "os.id": 7}
    assert agentanswers.os_info(info) == VirtualMachineInstanceGuestOSInfo(name="x" * agentanswers.TEXT)


def test_interfaces_keep_what_is_an_address() -> None:
    found = {
        "lo": {"hwaddr": "00:00:00:00:00:00", "addrs": [{"addr": "127.0.0.1"}]},
        "eth0": {"hwaddr": "02:00:00:00:00:01", "addrs": [{"addr": "10.0.0.2"}, {"addr": "nonsense"}, {}, 7]},
        "eth1": {"hwaddr": "x" * 1000, "addrs": None},
        "eth2": {"hwaddr": None, "addrs": [{"addr": f"10.0.0.{number}"} for number in range(256)]},
        "eth3": "nonsense",
    }
    first, second, third = agentanswers.interfaces(found)
    assert first == AgentInterface("eth0", "02:00:00:00:00:01", ("10.0.0.2",))
    assert second == AgentInterface("eth1", "")
    assert len(third.addresses) == 10


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "[",
        "[" * 100_000,
        "7",
        "[]",
        "{}",
        '{"return": 7}',
        '{"return": {"supported_commands": {"a": 1}}}',
    ],
)
def test_senseless_answer_about_the_agent_names_no_commands(answer: str) -> None:
    assert agentanswers.version_and_commands(answer) == ("", [])


def test_endless_answer_is_not_read() -> None:
    answer = json.dumps({"return": {"version": "7", "filler": [{}] * agentanswers.ANSWER}})
    assert agentanswers.version_and_commands(answer) == ("", [])


def test_commands_are_bounded() -> None:
    commands = [{"name": "c" * 1000, "enabled": True}, *({"name": "c"} for _ in range(4000))]
    answer = json.dumps({"return": {"version": 7, "supported_commands": commands}})
    version, found = agentanswers.version_and_commands(answer)
    assert (version, len(found)) == ("", agentanswers.MOST)
    assert found[0] == {"name": "c" * agentanswers.TEXT, "enabled": True}


@given(info=st.dictionaries(st.sampled_from(_KEYS), _VALUES))
def test_any_information_becomes_an_answer(info: dict[str, Any]) -> None:
    assert json.dumps(agentanswers.agent_info(info, [], "", []), allow_nan=False)


@given(found=st.dictionaries(st.text(max_size=5), _DETAILS))
def test_any_interfaces_become_interfaces(found: dict[str, Any]) -> None:
    assert json.dumps([asdict(each) for each in agentanswers.interfaces(found)], allow_nan=False)


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        ('{"return":"frozen"}', "frozen"),
        ('{"return":"thawed"}', "thawed"),
        ('{"return":"cold"}', ""),
        ('{"return":7}', ""),
        ('["frozen"]', ""),
        ("[" * 100_000, ""),
    ],
)
def test_only_two_words_tell_of_a_freeze(answer: str, state: str) -> None:
    assert agentanswers.freeze_state(answer) == state


def test_file_systems_are_measured_once_and_up_to_a_number() -> None:
    def mounted(number: int, **changes: object) -> dict[str, object]:
        told = {"name": f"vd{number}", "mountpoint": "/", "fstype": "ext4", "total-bytes": 9, "used-bytes": 4}
        return {f"fs.{number}.{key}": value for key, value in {**told, **changes}.items()}

    few = {"fs.count": 4, **mounted(0), **mounted(1), **mounted(2, name="vd0"), "fs.3.name": "without-sizes"}
    first = agentanswers.FileSystem("vd0", "ext4", "/", 9, 4)
    assert agentanswers.measured_file_systems(few) == (first, replace(first, disk="vd1"))
    many: dict[str, object] = {"fs.count": 500}
    for number in range(500):
        many |= mounted(number, mountpoint="/" * 5000)
    found = agentanswers.measured_file_systems(many)
    assert len(found) == agentanswers.MOST_MEASURED
    assert len(found[0].mount_point) == agentanswers.TEXT


@pytest.mark.parametrize(
    ("answer", "load"),
    [
        ('{"return":{"load1m":0.5,"load5m":1,"load15m":2}}', {"load1m": 0.5, "load5m": 1, "load15m": 2}),
        ('{"return":{"load1m":"much","load5m":-1,"load15m":true}}', {}),
        ('{"return":{"load1m":NaN,"load5m":Infinity,"load15m":1e300}}', {}),
        ('{"return":{"load1m":' + "9" * 400 + "}}", {}),
        ('{"return":[]}', {}),
        ('{"error":{}}', {}),
        ("[" * 100_000, {}),
    ],
)
def test_a_load_is_a_number_of_processes(answer: str, load: dict[str, float]) -> None:
    assert agentanswers.load(answer) == load
