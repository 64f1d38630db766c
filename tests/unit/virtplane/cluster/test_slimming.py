"""What is left of documents in caches."""

from __future__ import annotations

from kubecore.json import JsonObject, deep_copy
from virtplane.cluster.slimming import slim_pod, without_managed_fields

_METADATA: JsonObject = {"name": "p", "labels": {"a": "b"}, "managedFields": [{"manager": "m"}]}


def test_a_cached_pod_has_of_its_containers_what_controllers_read() -> None:
    container = {
        "name": "compute",
        "image": "i",
        "resources": {"limits": {"cpu": "1"}},
        "env": [{"name": "E"}],
    }
    spec = {"nodeName": "n", "containers": [container], "initContainers": [{"name": "first", "args": ["a"]}]}
    pod: JsonObject = {"kind": "Pod", "metadata": _METADATA, "spec": spec, "status": {"phase": "Running"}}
    before = deep_copy(pod)
    kept = {"name": "compute", "image": "i", "resources": {"limits": {"cpu": "1"}}}
    assert slim_pod(pod) == {
        "kind": "Pod",
        "metadata": {"name": "p", "labels": {"a": "b"}},
        "spec": {"nodeName": "n", "containers": [kept], "initContainers": [{"name": "first"}]},
        "status": {"phase": "Running"},
    }
    assert pod == before


def test_a_pod_without_specification_stays_readable() -> None:
    assert slim_pod({"metadata": {"name": "p"}}) == {"metadata": {"name": "p"}, "spec": {}}


def test_managed_fields_are_not_cached() -> None:
    found = without_managed_fields({"metadata": _METADATA, "data": {"a": 1}})
    assert found == {"metadata": {"name": "p", "labels": {"a": "b"}}, "data": {"a": 1}}
