"""Decisions about hooks of plugins: order, strategy, time, and where they may listen."""

from __future__ import annotations

import pytest

from virtplane.api.meta_v1 import ObjectMeta
from virtplane.api.plugin_v1alpha1.plugin import DomainHook, NodeHook, Plugin, PluginSpec
from virtplane.compute.plugins import hooks, sockets


def plugin(name: str = "p", strategy: str | None = None) -> Plugin:
    return Plugin(metadata=ObjectMeta(name=name), spec=PluginSpec(failure_strategy=strategy))


def test_plugins_take_turns_by_name() -> None:
    ordered = hooks.ordered([plugin("b"), plugin("a10"), plugin("a"), plugin("a2")])
    assert [each.metadata.name for each in ordered] == ["a", "a10", "a2", "b"]


@pytest.mark.parametrize(
    ("of_plugin", "of_hook", "expected"),
    [
        (None, None, False),
        ("Fail", None, False),
        ("Ignore", None, True),
        (None, "Ignore", True),
        ("Ignore", "Fail", False),
        ("Fail", "Ignore", True),
    ],
)
def test_the_strategy_of_a_hook_counts_before_its_plugins(
    of_plugin: str | None, of_hook: str | None, expected: bool
) -> None:
    assert hooks.may_fail(plugin(strategy=of_plugin), DomainHook(failure_strategy=of_hook)) is expected
    hook = NodeHook(socket="/s", permitted_hooks=("PreVMStart",), failure_strategy=of_hook)
    assert hooks.may_fail(plugin(strategy=of_plugin), hook) is expected


@pytest.mark.parametrize(
    ("timeout", "seconds"),
    [(None, 30), ("0s", 30), ("-1s", 30), ("nonsense", 30), ("1m30s", 90), ("500ms", 0.5), ("24h", 300)],
)
def test_a_call_has_its_time_and_never_more_than_five_minutes(timeout: str | None, seconds: float) -> None:
    assert hooks.seconds(DomainHook(timeout=timeout)) == seconds


@pytest.mark.parametrize(
    "path", ["/var/run/kubevirt-plugin/p/hook.sock", "/var/run/kubevirt-plugin/p/inner/hook.sock"]
)
def test_a_sidecar_listens_in_the_folder_of_its_plugin(path: str) -> None:
    assert f"/var/run/kubevirt-plugin/{sockets.sidecar_socket('p', path)}" == path


@pytest.mark.parametrize(
    "path",
    [
        "/var/run/kubevirt-plugin/other/hook.sock",
        "/var/run/kubevirt-plugin/p/../other/hook.sock",
        "/var/run/kubevirt-plugin/p//hook.sock",
        "//var/run/kubevirt-plugin/p/hook.sock",
        "/var/run/kubevirt-plugin/p",
        "/var/run/kubevirt-plugin/px/hook.sock",
        "hook.sock",
        "/run/docker.sock",
    ],
)
def test_other_sockets_are_not_a_sidecars(path: str) -> None:
    with pytest.raises(sockets.SocketError, match="is outside /var/run/kubevirt-plugin/p/"):
        sockets.sidecar_socket("p", path)


def test_a_service_listens_where_virt_handler_sees_the_node() -> None:
    assert str(sockets.node_socket("/var/run/kubevirt/plugins/x.sock")) == "plugins/x.sock"
    for path in (
        "/run/x.sock",
        "/var/run/kubevirt",
        "/var/run/kubevirt/../x.sock",
        "/var/run/kubevirt-x/a.sock",
    ):
        with pytest.raises(sockets.SocketError, match="is outside /var/run/kubevirt/"):
            sockets.node_socket(path)
