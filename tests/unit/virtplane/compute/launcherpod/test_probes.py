"""Probes of an instance as its launcher pod has them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.virtplane.compute.launcherpod.rendered_pods import compute, instance, rendered

from kubecore.json import JsonObject


def _probe(**probe: Any) -> JsonObject:
    found: JsonObject = compute(rendered(instance(readinessProbe=probe, livenessProbe=probe)))
    assert found["readinessProbe"] == found["livenessProbe"]
    return dict(found["readinessProbe"])


@pytest.mark.feature("MON-38", "MON-41")
def test_an_http_probe_is_the_containers() -> None:
    handler = {"port": 1500, "path": "/healthz", "httpHeaders": [{"name": "Custom-Header", "value": "A"}]}
    assert _probe(httpGet=handler)["httpGet"] == handler


@pytest.mark.feature("MON-38", "MON-42")
def test_a_tcp_probe_is_the_containers() -> None:
    assert _probe(tcpSocket={"port": 1500})["tcpSocket"] == {"port": 1500}


@pytest.mark.feature("MON-38", "MON-43")
def test_a_ping_of_the_guests_agent_is_a_command_in_the_container() -> None:
    probe = _probe(guestAgentPing={}, timeoutSeconds=10)
    assert "guestAgentPing" not in probe
    command = ["virt-probe", "--domainName", "ns_vm", "--timeoutSeconds", "10", "--guestAgentPing"]
    assert probe["exec"] == {"command": command}
    assert probe["timeoutSeconds"] == 11


def test_a_probes_command_runs_in_the_guest() -> None:
    probe = _probe(exec={"command": ["cat", "/tmp/x", "--", "y"]}, timeoutSeconds=5)
    command = ["virt-probe", "--domainName", "ns_vm", "--timeoutSeconds", "5", "--command", "cat"]
    assert probe["exec"] == {"command": [*command, "--", "/tmp/x", "--", "y"]}
    assert probe["timeoutSeconds"] == 6


def test_a_probe_without_a_command_keeps_no_pod_from_being_made() -> None:
    assert _probe(exec={})["exec"]["command"][-3:] == ["--command", "", "--"]


@pytest.mark.feature("MON-44", "MON-45", "MON-46", "MON-47", "MON-48")
def test_times_and_thresholds_of_a_probe_are_kept_and_its_delay_begins_with_the_guest() -> None:
    given = {"periodSeconds": 20, "timeoutSeconds": 10, "failureThreshold": 4, "successThreshold": 3}
    probe = _probe(tcpSocket={"port": 1}, initialDelaySeconds=120, **given)
    assert {key: probe[key] for key in given} == given
    assert probe["initialDelaySeconds"] == 130
