"""What is left of documents in caches."""

from __future__ import annotations

from kubecore import json
from kubecore.json import JsonObject, deep_copy
from virtplane.cluster.slimming import (
    identity,
    interned,
    lean,
    packed_revision,
    slim_pod,
    unpacked_revision,
    without_managed_fields,
)

_METADATA: JsonObject = {"name": "p", "labels": {"a": "b"}, "managedFields": [{"manager": "m"}]}


def test_a_cached_pod_has_of_its_specification_what_controllers_read() -> None:
    container = {
        "name": "compute",
        "image": "i",
        "resources": {"limits": {"cpu": "1"}},
        "env": [{"name": "E"}],
    }
    claim = {"name": "disk", "persistentVolumeClaim": {"claimName": "c"}}
    spec = {
        "nodeName": "n",
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "containers": [container],
        "initContainers": [{"name": "first", "args": ["a"]}],
        "volumes": [{"name": "private", "emptyDir": {}}, claim],
    }
    pod: JsonObject = {"kind": "Pod", "metadata": _METADATA, "spec": spec, "status": {"phase": "Running"}}
    before = deep_copy(pod)
    assert slim_pod(pod) == {
        "kind": "Pod",
        "metadata": {"name": "p", "labels": {"a": "b"}},
        "spec": {
            "nodeName": "n",
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "compute", "image": "i", "resources": {"limits": {"cpu": "1"}}}],
            "volumes": [claim],
        },
        "status": {"phase": "Running"},
    }
    assert pod == before


def test_a_pod_without_specification_stays_readable() -> None:
    spec: JsonObject = {"containers": [], "volumes": []}
    assert slim_pod({"metadata": {"name": "p"}}) == {"metadata": {"name": "p"}, "spec": spec}


def test_objects_share_their_strings_unless_they_are_long() -> None:
    document = {
        "spec": {"disks": [{"bus": "virtio-of-this-test"}]},
        "script": "x" * 65,
        "count": 1,
        "no": None,
    }
    first, second = (interned(json.decode(json.encode(document))) for _ in range(2))
    assert first == document
    assert first["spec"]["disks"][0]["bus"] is second["spec"]["disks"][0]["bus"]
    assert first["script"] is not second["script"]


def test_a_lean_document_has_everything_but_managed_fields() -> None:
    document: JsonObject = {"metadata": _METADATA, "spec": {"a": [1, True, None, 1.5]}}
    assert lean(document) == {
        "metadata": {"name": "p", "labels": {"a": "b"}},
        "spec": {"a": [1, True, None, 1.5]},
    }


def test_a_packed_revision_is_the_same_when_it_is_read() -> None:
    revision: JsonObject = {"metadata": _METADATA, "data": {"spec": {"running": True}}, "revision": 1}
    packed = packed_revision(revision)
    assert isinstance(packed["data"], bytes)
    assert unpacked_revision(packed) == without_managed_fields(revision)


def test_a_revision_without_data_stays_readable() -> None:
    revision: JsonObject = {"metadata": {"name": "r"}, "revision": 1}
    assert unpacked_revision(packed_revision(revision)) == revision
    nothing: JsonObject = {"metadata": {"name": "r"}, "data": None}
    assert unpacked_revision(packed_revision(nothing)) == nothing


def test_of_a_definition_only_its_identity_is_cached() -> None:
    metadata = {**_METADATA, "uid": "u", "resourceVersion": "7"}
    found = identity({"apiVersion": "v1", "kind": "K", "metadata": metadata, "spec": {"versions": []}})
    assert found == {
        "apiVersion": "v1",
        "kind": "K",
        "metadata": {"name": "p", "uid": "u", "resourceVersion": "7"},
    }


def test_managed_fields_are_not_cached() -> None:
    found = without_managed_fields({"metadata": _METADATA, "data": {"a": 1}})
    assert found == {"metadata": {"name": "p", "labels": {"a": "b"}}, "data": {"a": 1}}
