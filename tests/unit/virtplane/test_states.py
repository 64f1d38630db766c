"""The metrics of readiness and leadership."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from kubecore.client import Request
from kubecore.runtime.health import Health
from kubecore.runtime.metrics import exposition
from virtplane.states import RequestCounts, add_readiness, state

_LIMITS = ("0.1", "0.2", "60.0", "+Inf")


def test_each_component_of_a_process_tells_whether_it_is_ready() -> None:
    registry, health, wrong = CollectorRegistry(), Health(), ["starting"]
    health.add_ready("part", lambda: wrong[0])
    add_readiness(registry, ("virt-api", "snapshot-controller"), health)
    assert registry.get_sample_value("kubevirt_virt_api_ready_status") == 0
    wrong[0] = ""
    assert registry.get_sample_value("kubevirt_virt_api_ready_status") == 1
    assert registry.get_sample_value("kubevirt_snapshot_controller_ready_status") is None


def test_a_state_is_told_only_while_it_lasts() -> None:
    registry = CollectorRegistry()
    with state(registry, "a_state", "A state", lambda: True):
        assert registry.get_sample_value("a_state") == 1
    assert registry.get_sample_value("a_state") is None


def test_the_times_of_requests_are_told_without_names() -> None:
    registry = CollectorRegistry()
    counts = RequestCounts(registry)
    took, waited = counts.took("https://api.test:6443"), counts.waited("https://api.test:6443")
    for name in ("one", "two"):
        took(Request("GET", f"/api/v1/namespaces/ns-{name}/pods/{name}"), 0.15)
        waited(Request("GET", f"/api/v1/namespaces/ns-{name}/pods/{name}"), 0.003)
    url = "https://api.test:6443/api/v1/namespaces/%7Bnamespace%7D/pods/%7Bname%7D"
    labels = {"verb": "GET", "url": url}
    name = "kubevirt_rest_client_request_latency_seconds"
    assert registry.get_sample_value(f"{name}_count", labels) == 2
    assert registry.get_sample_value(f"{name}_sum", labels) == 0.3
    buckets = {
        limit: registry.get_sample_value(f"{name}_bucket", {**labels, "le": limit}) for limit in _LIMITS
    }
    assert buckets == {"0.1": 0, "0.2": 2, "60.0": 2, "+Inf": 2}
    name = "kubevirt_rest_client_rate_limiter_duration_seconds"
    assert registry.get_sample_value(f"{name}_bucket", {**labels, "le": "0.002"}) == 0
    assert registry.get_sample_value(f"{name}_bucket", {**labels, "le": "0.004"}) == 2
    text = exposition(registry).decode()
    assert f"# TYPE {name} histogram\n" in text
    assert f'{name}_bucket{{le="0.512",url="{url}",verb="GET"}} 2.0\n' in text


def test_requests_are_counted_by_what_became_of_them() -> None:
    registry = CollectorRegistry()
    count = RequestCounts(registry).of("https://api.test:6443")
    request = Request("PATCH", "/api/v1/namespaces/ns/pods/p/status")
    for status in (200, 200, 0):
        count(request, status)
    labels = {"method": "PATCH", "host": "api.test:6443", "resource": "pods", "verb": "PATCH"}
    name = "kubevirt_rest_client_requests_total"
    assert registry.get_sample_value(name, {**labels, "code": "200"}) == 2
    assert registry.get_sample_value(name, {**labels, "code": "<error>"}) == 1
