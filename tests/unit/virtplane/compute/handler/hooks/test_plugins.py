"""Hooks of plugins: sidecars and services are real gRPC servers at Unix sockets."""

from __future__ import annotations

import json
import logging
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.plugin_service import domain_service, node_service

from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.meta_v1 import ObjectMeta
from virtplane.api.plugin_v1alpha1.plugin import (
    CELMutation,
    DomainHook,
    NodeHook,
    Plugin,
    PluginSpec,
    SidecarMutation,
)
from virtplane.compute.handler.hooks import calls, plugins
from virtplane.compute.handler.hooks.plugins import MachinePlugins, PluginError
from virtplane.compute.handler.settings import HandlerSettings, PodPaths
from virtplane.compute.handler.threads import Steps

VMI = VirtualMachineInstance(metadata=ObjectMeta(name="vm", namespace="ns", uid="u", labels={"app": "test"}))
XML = "<domain><name>ns_vm</name><devices/></domain>"
NODE_SOCKET = "/var/run/kubevirt/plugins/x.sock"


class Place:
    """A launcher's pod and the node that it is on."""

    def __init__(self, root: Path) -> None:
        paths = PodPaths("", root / "pod")
        self.share = root / "share"
        self.share.mkdir()
        self.volume = paths.empty_dir("kubevirt-plugin-sockets")
        self.volume.mkdir(parents=True)
        settings = HandlerSettings(node_name="node01", share_directory=self.share)
        self.hooks = MachinePlugins(settings, "ns/vm", paths, Steps("ns/vm", lambda: None))

    def sidecar_socket(self, plugin: str) -> Path:
        return self.volume / plugin / "hook.sock"

    @property
    def node_socket(self) -> Path:
        return self.share / "plugins/x.sock"

    async def define(self, *known: Plugin) -> str:
        return await self.hooks.define(known, VMI, "ns_vm", XML)


@pytest.fixture
def place() -> Iterator[Place]:
    # The address of a socket has room for 107 bytes, which rules out pytest's own folders.
    with tempfile.TemporaryDirectory(prefix="plug-") as made:
        yield Place(Path(made))


def plugin(name: str, *hooks: DomainHook | NodeHook, **spec: Any) -> Plugin:
    return Plugin(
        metadata=ObjectMeta(name=name),
        spec=PluginSpec(
            domain_hooks=tuple(hook for hook in hooks if isinstance(hook, DomainHook)),
            node_hooks=tuple(hook for hook in hooks if isinstance(hook, NodeHook)),
            **spec,
        ),
    )


def cel(text: str, **others: Any) -> DomainHook:
    return DomainHook(cel=CELMutation(expression=text), **others)


def sidecar(name: str, **others: Any) -> DomainHook:
    path = f"/var/run/kubevirt-plugin/{name}/hook.sock"
    return DomainHook(sidecar=SidecarMutation(socket_path=path), **others)


def node(*points: str, **others: Any) -> NodeHook:
    return NodeHook(**{"socket": NODE_SOCKET, "permitted_hooks": points, **others})


def adding(tag: str) -> Any:
    """A sidecar's answer that adds a device."""
    return lambda request: request.domain.replace(b"</domain>", f"<{tag}/></domain>".encode())


def _breaking(_request: Any) -> bytes:
    raise RuntimeError


async def test_without_domain_hooks_the_domain_is_as_it_was(place: Place) -> None:
    assert await place.define() == XML
    assert await place.define(plugin("a", node("PreVMStart"), condition="no CEL")) == XML


async def test_hooks_change_the_domain_by_the_names_of_plugins_and_in_their_order(place: Place) -> None:
    """The last one to write a field wins; a sidecar sees what came before it."""
    late = plugin("b", cel('Domain{Title: domainSpec.Title + "-b"}'))
    early = plugin("a", cel('Domain{Title: "first"}'), cel('Domain{Title: "a"}'), sidecar("a"))
    seen: list[bytes] = []

    def answer(request: Any) -> bytes:
        seen.append(request.domain)
        changed: bytes = adding("from-sidecar")(request)
        return changed

    with domain_service(place.sidecar_socket("a"), answer):
        made = await place.define(late, early)
    assert "<title>a-b</title>" in made and "<from-sidecar/>" in made
    assert b"<title>a</title>" in seen[0]


async def test_a_sidecar_is_told_of_its_instance_and_why_it_is_called(place: Place) -> None:
    told: list[Any] = []

    def answer(request: Any) -> bytes:
        told.append(request)
        domain: bytes = request.domain
        return domain

    with domain_service(place.sidecar_socket("a"), answer):
        await place.define(plugin("a", sidecar("a")))
    (request,) = told
    assert request.domain_type == "libvirt"
    assert request.sidecar_context.invocation_context == "Boot"
    assert json.loads(request.vmi)["metadata"]["name"] == "vm"


@pytest.mark.parametrize(
    ("of_plugin", "of_hook", "called"),
    [
        ('vmi.Labels["app"] == "test"', 'domainSpec.Name == "ns_vm"', True),
        ('vmi.Labels["app"] == "other"', None, False),
        (None, 'vmi.Namespace == "other"', False),
    ],
)
async def test_conditions_decide_whether_a_hook_is_called(
    place: Place, of_plugin: str | None, of_hook: str | None, called: bool
) -> None:
    others = plugin("0", node("PreVMStart"), condition="no CEL")
    mine = plugin("a", cel('Domain{Title: "x"}', condition=of_hook), condition=of_plugin)
    made = await place.define(others, mine)
    assert ("<title>x</title>" in made) is called


@pytest.mark.parametrize("where", ["plugin", "hook"])
async def test_a_condition_without_a_value_keeps_the_guest_from_starting_whatever_the_strategy(
    place: Place, where: str
) -> None:
    wrong = 'vmi.Labels["none"] == "x"'
    hook = cel('Domain{Title: "x"}', condition=wrong if where == "hook" else None)
    broken = plugin("a", hook, condition=wrong if where == "plugin" else None, failure_strategy="Ignore")
    with pytest.raises(
        PluginError, match=r"plugin a( hook 0)? condition evaluation failed: .*no such key: none"
    ):
        await place.define(broken)


@pytest.mark.parametrize(
    ("hook", "problem"),
    [
        (cel("Domain{Title: vmi.Labels['none']}"), "evaluating expression: no such key: none"),
        (cel('Domain{Name: "other"}'), "another domain than ns_vm"),
        (sidecar("a"), "hook.sock not ready after 0s"),
        (sidecar("other"), "invalid socket path"),
    ],
)
async def test_a_hook_that_fails_keeps_the_guest_from_starting_unless_it_may_fail(
    place: Place,
    hook: DomainHook,
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(plugins, "_READY_SECONDS", 0.0)
    after = cel('Domain{Title: "after"}')
    with pytest.raises(PluginError, match=r"plugin a hook 0 failed: ") as raised:
        await place.define(plugin("a", hook, after))
    assert problem in str(raised.value)
    with caplog.at_level(logging.WARNING):
        made = await place.define(plugin("a", hook, after, failure_strategy="Ignore"))
    assert "<title>after</title>" in made and "passed over" in caplog.text


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (lambda _: b"<domain><name>ns_other</name></domain>", "another domain than ns_vm"),
        (lambda _: b"no XML", "no XML"),
        (
            lambda _: (
                b'<!DOCTYPE d [<!ENTITY e SYSTEM "file:///etc/passwd">]><domain><name>&e;</name></domain>'
            ),
            "than",
        ),
        (lambda _: b"x" * (calls.ANSWER_BYTES + 1), "RESOURCE_EXHAUSTED"),
        (_breaking, "UNKNOWN"),
    ],
)
async def test_what_a_sidecar_answers_is_not_trusted(place: Place, answer: Any, problem: str) -> None:
    with domain_service(place.sidecar_socket("a"), answer), pytest.raises(PluginError) as raised:
        await place.define(plugin("a", sidecar("a")))
    assert problem in str(raised.value)


async def test_a_sidecar_that_opens_its_socket_late_is_waited_for(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins to listen while virt-handler looks for the second time."""
    monkeypatch.setattr(plugins, "_POLL_SECONDS", 0.0)
    looks: list[bool] = []
    with tempfile.TemporaryDirectory(prefix="plug-") as other:
        elsewhere = Path(other) / "s"

        def look(self: MachinePlugins, where: Any) -> bool:
            looks.append(present(self, where))
            if not looks[-1]:
                place.sidecar_socket("a").parent.mkdir()
                os.link(elsewhere, place.sidecar_socket("a"))
            return looks[-1]

        present = MachinePlugins._is_there
        monkeypatch.setattr(MachinePlugins, "_is_there", look)
        with domain_service(elsewhere, adding("late")):
            assert "<late/>" in await place.define(plugin("a", sidecar("a")))
    assert looks == [False, True]


async def test_a_sidecar_that_never_answers_is_given_up(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "_SIDECAR_CONNECT_SECONDS", 0.2)
    place.sidecar_socket("a").parent.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place.sidecar_socket("a")))
        listener.listen()
        with pytest.raises(PluginError, match=r"DEADLINE_EXCEEDED|nobody accepted a connection"):
            await place.define(plugin("a", sidecar("a", timeout="200ms")))


@pytest.mark.parametrize("what", ["socket", "folder"])
async def test_links_of_the_launcher_lead_nowhere(
    place: Place, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launcher writes to the whole volume: it could lead virt-handler to another plugin or guest."""
    monkeypatch.setattr(plugins, "_READY_SECONDS", 0.0)
    with domain_service(place.sidecar_socket("other"), adding("x")):
        mine = place.sidecar_socket("a")
        if what == "folder":
            mine.parent.symlink_to("other")
        else:
            mine.parent.mkdir()
            mine.symlink_to("../other/hook.sock")
        with pytest.raises(PluginError, match="is a symlink, which is not allowed"):
            await place.define(plugin("a", sidecar("a")))


async def test_services_of_the_node_are_told_by_the_names_of_plugins(place: Place) -> None:
    heard: list[tuple[str, str, str, str]] = []

    def told(by: str) -> Any:
        def record(request: Any) -> None:
            vmi = json.loads(request.vmi)["metadata"]["name"]
            heard.append((by, request.hookPoint, request.node_context.node_name, vmi))

        return record

    with (
        node_service(place.node_socket, told("x")),
        node_service(place.share / "plugins/y.sock", told("y")),
    ):
        other = node("PreVMStart", socket="/var/run/kubevirt/plugins/y.sock")
        known = [plugin("z", node("PreVMStart", "PostVMStop")), plugin("a", other)]
        await place.hooks.tell(known, "PreVMStart", VMI)
        await place.hooks.tell(known, "PostVMStop", VMI)
        await place.hooks.tell(known, "PreVMStop", VMI)
    assert heard == [
        ("y", "PreVMStart", "node01", "vm"),
        ("x", "PreVMStart", "node01", "vm"),
        ("x", "PostVMStop", "node01", "vm"),
    ]


@pytest.mark.parametrize(
    ("of_plugin", "of_hook", "called"),
    [
        ('vmi.Name == "vm"', 'vmi.metadata.name == "vm"', True),
        ('vmi.Name == "other"', None, False),
        (None, "has(vmi.metadata.labels.testLabel)", False),
    ],
)
async def test_conditions_decide_whether_a_service_is_told(
    place: Place, of_plugin: str | None, of_hook: str | None, called: bool
) -> None:
    heard: list[Any] = []
    with node_service(place.node_socket, heard.append):
        hook = node("PreVMStart", condition=of_hook)
        await place.hooks.tell([plugin("a", hook, condition=of_plugin)], "PreVMStart", VMI)
    assert bool(heard) is called


async def test_a_service_that_is_away_holds_its_guest_up_unless_it_may_fail(place: Place) -> None:
    with pytest.raises(PluginError, match=r"node hook PreVMStart from plugin a failed: .*No such file"):
        await place.hooks.tell([plugin("a", node("PreVMStart"))], "PreVMStart", VMI)
    passed_over = plugin("a", node("PreVMStart", failure_strategy="Ignore"))
    await place.hooks.tell([passed_over], "PreVMStart", VMI)
    outside = plugin("a", node("PreVMStart", socket="/run/x.sock"))
    with pytest.raises(PluginError, match="is outside /var/run/kubevirt/"):
        await place.hooks.tell([outside], "PreVMStart", VMI)


async def test_a_service_that_refuses_says_why(place: Place) -> None:
    def refuse(_request: Any) -> None:
        raise ValueError("no room")

    with (
        node_service(place.node_socket, refuse),
        pytest.raises(PluginError, match="the call failed: UNAVAILABLE: no room"),
    ):
        await place.hooks.tell([plugin("a", node("PreVMStart"))], "PreVMStart", VMI)


async def test_no_link_leads_virt_handler_to_a_service(place: Place) -> None:
    with node_service(place.share / "elsewhere/x.sock", lambda _: None):
        place.node_socket.parent.symlink_to("elsewhere")
        with pytest.raises(PluginError, match="Too many levels of symbolic links"):
            await place.hooks.tell([plugin("a", node("PreVMStart"))], "PreVMStart", VMI)


async def test_a_point_that_all_have_heard_of_is_not_told_again(place: Place) -> None:
    heard: list[Any] = []
    known = [plugin("a", node("PreVMStop"))]
    with pytest.raises(PluginError):
        await place.hooks.tell_once(known, "PreVMStop", VMI)
    with node_service(place.node_socket, heard.append):
        await place.hooks.tell_once(known, "PreVMStop", VMI)
        await place.hooks.tell_once(known, "PreVMStop", VMI)
    assert len(heard) == 1
