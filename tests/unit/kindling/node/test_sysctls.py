"""Kernel parameters of pods: the safe ones, and those that the node's options allow."""

from __future__ import annotations

from typing import Any

import pytest

from kindling.node import options
from kindling.node.options import OptionProblem
from kindling.node.pods import sysctls
from kindling.node.pods.sandbox import ResolverSettings, sandbox_config

SAFE, UNSAFE = "kernel.shm_rmid_forced", "kernel.msgmax"


def pod(*names: str) -> dict[str, Any]:
    values = [{"name": name, "value": "1"} for name in names]
    return {
        "metadata": {"name": "a", "namespace": "ns", "uid": "u"},
        "spec": {"securityContext": {"sysctls": values}, "containers": []},
    }


def allowed(*patterns: str) -> tuple[str, ...]:
    return options.parse([f"allowed-unsafe-sysctls={','.join(patterns)}"]).allowed_unsafe_sysctls


def test_safe_ones_are_set() -> None:
    assert sysctls.refusal(pod(SAFE, "net.ipv4.tcp_keepalive_time"), ()) is None
    assert sysctls.refusal({"spec": {"containers": []}}, ()) is None


@pytest.mark.parametrize("name", [UNSAFE, "kernel/msgmax", "net.core.somaxconn", "kernel.shm_rmid_forced2"])
def test_others_are_refused(name: str) -> None:
    found = sysctls.refusal(pod(SAFE, name), ())
    assert found is not None
    assert found.reason == "SysctlForbidden"
    assert found.message == f'forbidden sysctl: "{name.replace("/", ".")}" not allowlisted'


def test_options_of_a_node_allow_names_and_beginnings_of_names() -> None:
    assert sysctls.refusal(pod(UNSAFE, SAFE), allowed(UNSAFE)) is None
    assert sysctls.refusal(pod("kernel.msgmni"), allowed(UNSAFE)) is not None
    assert (
        sysctls.refusal(pod("kernel.msgmni", "net.core.somaxconn"), allowed("kernel.msg*", "net.*")) is None
    )


@pytest.mark.parametrize("pattern", ["kernel.panic", "*", "vm.*"])
def test_what_would_be_the_whole_machines_cannot_be_allowed(pattern: str) -> None:
    with pytest.raises(OptionProblem, match="not known to have a namespace"):
        allowed(pattern)


def test_the_runtime_gets_names_with_dots() -> None:
    given = pod("net/ipv4/conf/eth0.100/arp_ignore", SAFE)
    resolver = ResolverSettings("10.0.0.10")
    found = sandbox_config(given, 0, resolver, "root")["linux"]["sysctls"]
    assert found == {"net.ipv4.conf.eth0/100.arp_ignore": "1", SAFE: "1"}
