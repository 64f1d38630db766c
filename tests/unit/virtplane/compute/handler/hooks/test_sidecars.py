"""Hook sidecars: what they may change, and what comes of those that misbehave."""

from __future__ import annotations

import json
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.support.hook_sidecar import sidecar

from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.meta_v1 import ObjectMeta
from virtplane.compute.handler.hooks import calls, messages, sidecars
from virtplane.compute.handler.hooks.calls import HookError
from virtplane.compute.handler.hooks.sidecars import (
    HookSidecars,
    changed_data,
    checked_domain,
    shown_domain,
)
from virtplane.compute.handler.settings import PodPaths
from virtplane.compute.handler.storage.cloudinit import CloudInitData
from virtplane.compute.handler.threads import Steps

VMI = VirtualMachineInstance(metadata=ObjectMeta(name="vm", namespace="ns", uid="u"))
XML = "<domain><name>ns_vm</name><devices/></domain>"


class Pod:
    """A launcher's pod with folders for sidecars."""

    def __init__(self, root: Path) -> None:
        self.paths = PodPaths("", root)
        self.folder = self.paths.empty_dir("hook-sidecar-sockets")
        self.sidecars = HookSidecars(self.paths, Steps("ns/vm", lambda: None))

    def socket(self, index: int) -> Path:
        folder = self.folder / f"hook-sidecar-{index}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / "hook.sock"

    async def define(self) -> str:
        return await self.sidecars.define(VMI, "ns_vm", XML)


@pytest.fixture
def pod() -> Iterator[Pod]:
    # The address of a socket has room for 107 bytes, which rules out pytest's own folders.
    with tempfile.TemporaryDirectory(prefix="hooks-") as made:
        yield Pod(Path(made))


def adding(tag: str) -> Any:
    """A sidecar's answer that adds a device."""
    return {
        "OnDefineDomain": lambda request: {
            "domainXML": request.domainXML.replace(b"</devices>", f"<{tag}/></devices>".encode()).replace(
                b"<devices/>", f"<devices><{tag}/></devices>".encode()
            )
        }
    }


async def test_a_pod_without_sidecars_changes_nothing(pod: Pod) -> None:
    assert await pod.define() == XML
    assert pod.sidecars.change_cloud_init(VMI, CloudInitData("a", "b")) == CloudInitData("a", "b")


@pytest.mark.parametrize("version", ["v1alpha1", "v1alpha2", "v1alpha3"])
async def test_sidecars_change_the_domain_by_priority(pod: Pod, version: str) -> None:
    with ExitStack() as serving:
        for index, (tag, priority) in enumerate((("late", 1), ("early", 9))):
            points = [("OnDefineDomain", priority)]
            started = sidecar(pod.socket(index), points, adding(tag), name=tag, versions=["v9", version])
            serving.enter_context(started)
        assert "<early/><late/>" in await pod.define()


async def test_a_sidecar_is_told_of_its_instance(pod: Pod) -> None:
    told: list[Any] = []

    def answer(request: Any) -> dict[str, bytes]:
        told.append(json.loads(request.vmi))
        return {"domainXML": request.domainXML}

    with sidecar(pod.socket(0), [("OnDefineDomain", 0)], {"OnDefineDomain": answer}):
        await pod.define()
    assert told[0]["metadata"]["name"] == "vm"


async def test_hooks_that_a_sidecar_does_not_want_are_not_called(pod: Pod) -> None:
    with sidecar(pod.socket(0), [("Shutdown", 0)], {}):
        assert await pod.define() == XML


def test_a_sidecar_changes_cloud_init_data(pod: Pod) -> None:
    def answer(request: Any) -> dict[str, bytes]:
        said = json.loads(request.cloudInitData)
        return {"cloudInitData": json.dumps({**said, "UserData": said["UserData"] + "!"}).encode()}

    with sidecar(pod.socket(0), [("PreCloudInitIso", 0)], {"PreCloudInitIso": answer}):
        assert pod.sidecars.change_cloud_init(VMI, CloudInitData("a", "b")) == CloudInitData("a!", "b")


def test_an_old_sidecar_changes_the_source() -> None:
    assert changed_data("s", b"", b'{"userData": "u"}') == CloudInitData("u", "")


async def test_a_sidecar_hears_of_the_end_and_nobody_waits_for_one_that_is_gone(pod: Pod) -> None:
    heard: list[str] = []

    def end(_request: Any) -> dict[str, bytes]:
        heard.append("end")
        return {}

    answers = {**adding("x"), "Shutdown": end}
    with sidecar(pod.socket(0), [("OnDefineDomain", 0), ("Shutdown", 0)], answers):
        await pod.define()
        await pod.sidecars.shut_down()
    await pod.sidecars.shut_down()
    assert heard == ["end"]


async def test_a_sidecar_that_is_not_ready_is_asked_again(pod: Pod) -> None:
    path = pod.socket(0)
    with pytest.raises(HookError, match="hook-sidecar-0 has not opened its socket"):
        await pod.define()
    with sidecar(path, [("OnDefineDomain", 0)], adding("x")):
        assert "<x/>" in await pod.define()


async def test_a_sidecar_that_never_answers_is_given_up(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sidecars, "_INFO_SECONDS", 0.2)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(pod.socket(0)))
        listener.listen()
        with pytest.raises(HookError, match="hook-sidecar-0 does not answer"):
            await pod.define()


async def test_an_endless_answer_is_refused(pod: Pod) -> None:
    answers = {"OnDefineDomain": lambda _: {"domainXML": b"x" * (calls.ANSWER_BYTES + 1)}}
    with (
        sidecar(pod.socket(0), [("OnDefineDomain", 0)], answers),
        pytest.raises(HookError, match="RESOURCE_EXHAUSTED"),
    ):
        await pod.define()


async def test_a_link_to_another_pods_socket_is_not_followed(pod: Pod) -> None:
    with ExitStack() as serving:
        other = serving.enter_context(tempfile.TemporaryDirectory(prefix="other-"))
        points = [("OnDefineDomain", 0)]
        serving.enter_context(sidecar(Path(other, "hook.sock"), points, adding("stolen")))
        pod.socket(0).symlink_to(f"{other}/hook.sock")
        with pytest.raises((HookError, OSError)):
            await pod.define()


async def test_a_sidecar_of_no_known_version_is_named(pod: Pod) -> None:
    with (
        sidecar(pod.socket(0), [], {}, versions=["v2"]),
        pytest.raises(HookError, match="hook-sidecar-0 speaks none of"),
    ):
        await pod.define()


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"", "no XML"),
        (b"<domain>", "no XML"),
        (b"\xff\xfe", "no XML"),
        (b"<network><name>ns_vm</name></network>", "another domain"),
        (b"<domain><name>other</name></domain>", "another domain"),
        (
            b'<!DOCTYPE d [<!ENTITY n SYSTEM "file:///etc/hostname">]><domain><name>&n;</name></domain>',
            "another",
        ),
    ],
)
def test_a_domain_that_is_none_or_anothers_is_refused(answer: bytes, problem: str) -> None:
    with pytest.raises(HookError, match=problem):
        checked_domain("s", "ns_vm", answer)


def test_a_sidecar_finds_the_texts_that_scripts_for_kubevirt_replace() -> None:
    xml = "<domain><name>ns_vm</name><sysinfo type='smbios'><system><entry name='uuid'>u</entry></system>"
    told = shown_domain("s", f"{xml}</sysinfo><features><acpi/></features></domain>")
    assert "</system><bios></bios><baseBoard></baseBoard><chassis></chassis></sysinfo>" in told
    assert "<acpi></acpi>" in told
    named = "<baseBoard><entry name='manufacturer'>Radical Edward</entry></baseBoard>"
    kept = checked_domain("s", "ns_vm", told.replace("<baseBoard></baseBoard>", named).encode())
    assert (
        '</system><baseBoard><entry name="manufacturer">Radical Edward</entry></baseBoard></sysinfo>' in kept
    )


def test_a_sidecar_does_not_pass_its_entities_on() -> None:
    answer = b'<!DOCTYPE d [<!ENTITY n SYSTEM "file:///etc/hostname">]><domain><name>ns_vm</name>&n;</domain>'
    with pytest.raises(HookError, match="no XML"):
        shown_domain("s", checked_domain("s", "ns_vm", answer))


@pytest.mark.parametrize("answer", [b"", b"[]", b"7", b'{"UserData": 7}', b"[" * 100000])
def test_cloud_init_data_that_is_no_text_is_refused(answer: bytes) -> None:
    with pytest.raises(HookError, match="hook sidecar s answers"):
        changed_data("s", answer, b"")


def test_folders_that_the_kubelet_did_not_make_are_not_looked_at(pod: Pod) -> None:
    for name in ("hook-sidecar-x", "hook-sidecar-100", "else"):
        (pod.folder / name).mkdir(parents=True)
    assert pod.sidecars.change_cloud_init(VMI, CloudInitData("a", "")) == CloudInitData("a", "")


def test_a_sidecar_introduces_itself_in_the_bytes_of_kubevirts_sidecars() -> None:
    """What KubeVirt's shim answers: name, a hook of priority 0, and in field 4 its version."""
    answer = b"\x0a\x04shim\x1a\x10\x0a\x0eOnDefineDomain\x22\x08v1alpha2"
    said = messages.info().message("InfoResult").FromString(answer)
    assert (said.name, list(said.versions)) == ("shim", ["v1alpha2"])
    assert [(each.name, each.priority) for each in said.hookPoints] == [("OnDefineDomain", 0)]
