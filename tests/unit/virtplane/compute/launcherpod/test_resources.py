"""Memory and processors that the containers of a launcher pod ask for."""

from __future__ import annotations

import pytest
from tests.unit.virtplane.compute.launcherpod.rendered_pods import compute, instance, rendered

from kubecore.json import JsonObject


@pytest.mark.feature("VML-73")
def test_requests_without_limits_get_the_overhead_and_no_limits() -> None:
    asked = {"requests": {"memory": "128Mi"}}
    found = compute(rendered(instance(domain={"resources": asked})))["resources"]
    assert not {"cpu", "memory"} & set(found["limits"])
    assert found["requests"]["memory"] != "128Mi"


def _quota(*names: str) -> JsonObject:
    return {"spec": {"hard": dict.fromkeys(names, "10")}}


@pytest.mark.feature("VML-74")
def test_limits_are_set_where_a_quota_asks_for_them() -> None:
    vmi = instance(domain={"cpu": {"sockets": 2, "cores": 2, "threads": 1}})
    plain = compute(rendered(vmi))["resources"]
    limited = compute(rendered(vmi, quotas=[_quota("limits.cpu", "limits.memory")]))["resources"]
    assert not {"cpu", "memory"} & set(plain["limits"])
    assert limited["limits"]["cpu"] == "4"

    def bytes_of(text: str) -> int:
        from kubecore.objects.quantity import Quantity

        return Quantity.parse(text).value

    assert bytes_of(limited["limits"]["memory"]) == 2 * bytes_of(plain["requests"]["memory"])


@pytest.mark.parametrize("written", ["inf", "nan", "1e400", "much", ""])
def test_a_ratio_of_limits_that_is_no_number_is_the_usual_one(written: str) -> None:
    labels = {"alpha.kubevirt.io/auto-memory-limits-ratio": written}
    quotas = [_quota("limits.memory")]
    usual, found = (
        compute(rendered(instance(), quotas=quotas, namespace=namespace))["resources"]["limits"]["memory"]
        for namespace in ({}, {"metadata": {"labels": labels}})
    )
    assert found == usual


@pytest.mark.parametrize(
    ("domain", "added_mi"),
    [
        ({"devices": {"tpm": {}}}, 53),
        ({"launchSecurity": {"sev": {}}}, 256),
        ({"devices": {"gpus": [{"name": "g", "deviceName": "a/b"}]}}, 1024),
        ({"devices": {"autoattachGraphicsDevice": False}}, -32),
        ({"cpu": {"sockets": 3}}, 16),
    ],
)
def test_the_overhead_grows_with_what_the_guest_has(domain: JsonObject, added_mi: int) -> None:
    def overhead(pod: JsonObject) -> int:
        return int(pod["metadata"]["annotations"]["kubevirt.io/memory-overhead-bytes"])

    assert overhead(rendered(instance(domain=domain))) - overhead(rendered(instance())) == added_mi << 20


@pytest.mark.parametrize(
    ("requests", "limits", "expected"),
    [
        ({"cpu": "2", "memory": "1Gi"}, {"cpu": "2", "memory": "1Gi"}, "60M"),
        ({"cpu": "2"}, {"cpu": "2", "memory": "1Gi"}, "60M"),
        ({"memory": "1Gi"}, {"cpu": "2", "memory": "1Gi"}, "35M"),
        ({"cpu": "2", "memory": "1Gi"}, {"cpu": "2", "memory": "2Gi"}, "35M"),
    ],
)
def test_helpers_request_what_they_may_use_where_the_pod_is_to_be_guaranteed(
    requests: JsonObject, limits: JsonObject, expected: str
) -> None:
    pod = rendered(instance(domain={"resources": {"requests": requests, "limits": limits}}))
    log = next(item for item in pod["spec"]["initContainers"] if item["name"] == "guest-console-log")
    assert log["resources"]["requests"]["memory"] == expected
