"""What is asked of drivers: places, modes, parameters, secrets; the command line."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.fake_csi_driver import NAME
from tests.unit.virtplane.storage.csi import cluster

from kubecore.json import JsonObject
from kubecore.objects import storage_class
from kubecore.objects.structs import decode
from kubecore.wire.csi import access_mode
from virtplane.api.storage_kinds import (
    CSINode,
    LabelledNode,
    PersistentVolumeClaim,
    SecretReference,
    StorageClass,
    VolumeNodeAffinity,
)
from virtplane.storage.csi import parameters, topology
from virtplane.storage.csi.capacity import manager_name
from virtplane.storage.csi.options import parse
from virtplane.storage.csi.parts import Problem, Retries, members_patch
from virtplane.storage.csi.requests import Naming, class_of

PREFIX = "csi.storage.k8s.io/"
BETA = storage_class.CLASS_ANNOTATION


@pytest.mark.parametrize(
    ("modes", "apart", "expected"),
    [
        (["ReadWriteOnce"], False, "SINGLE_NODE_WRITER"),
        (["ReadWriteOnce"], True, "SINGLE_NODE_MULTI_WRITER"),
        (["ReadWriteOncePod"], False, "SINGLE_NODE_WRITER"),
        (["ReadWriteOncePod"], True, "SINGLE_NODE_SINGLE_WRITER"),
        (["ReadOnlyMany"], True, "MULTI_NODE_READER_ONLY"),
        (["ReadOnlyMany", "ReadWriteMany"], True, "MULTI_NODE_MULTI_WRITER"),
    ],
)
def test_access_modes_become_the_drivers(modes: list[str], apart: bool, expected: str) -> None:
    assert access_mode(modes, tells_pods_apart=apart) == expected


@pytest.mark.parametrize(
    ("modes", "text"),
    [
        (["ReadWriteOncePod", "ReadWriteOnce"], "does not support use of ReadWriteOncePod with other access"),
        (["ReadOnlyMany", "ReadWriteOnce"], "CSI does not support ReadOnlyMany and ReadWriteOnce"),
        ([], "unsupported AccessMode combination"),
    ],
)
def test_access_modes_that_contradict_each_other_are_refused(modes: list[str], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        access_mode(modes, tells_pods_apart=True)


def _required(
    node: str = "",
    allowed: list[str] | None = None,
    *,
    strict: bool = False,
    immediate: bool = True,
    name: str = "c",
) -> Any:
    """The places asked for, and those preferred, among nodes a, b and c of zones 1, 1 and 2."""
    terms: list[JsonObject] = []
    if allowed is not None:
        terms = [{"matchLabelExpressions": [{"key": "zone", "values": allowed}]}]
    labels = {"a": "1", "b": "1", "c": "2"}
    nodes = {
        each: decode(LabelledNode, {"metadata": {"name": each, "labels": {"zone": zone}}})
        for each, zone in labels.items()
    }
    drivers = {"spec": {"drivers": [{"name": NAME, "nodeID": "x", "topologyKeys": ["zone"]}]}}
    csi_nodes = {each: decode(CSINode, {"metadata": {"name": each}, **drivers}) for each in labels}
    found = topology.requirement(
        NAME,
        name,
        decode(StorageClass, cluster.storage_class(allowedTopologies=terms)),
        node,
        nodes,
        csi_nodes,
        strict=strict,
        immediate=immediate,
    )
    if found is None:
        return None
    return tuple(
        "".join(each["segments"]["zone"] for each in found[key]) for key in ("requisite", "preferred")
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"node": "c"}, ("12", "21")),
        ({"node": "c", "strict": True}, ("2", "2")),
        ({"node": "c", "allowed": ["2", "3"]}, ("23", "23")),
        ({"node": "c", "allowed": ["2", "3"], "strict": True}, ("2", "2")),
        ({"immediate": False}, None),
        ({"immediate": False, "allowed": ["2"]}, ("2", "2")),
    ],
)
def test_places_follow_the_table_of_the_provisioner(arguments: dict[str, Any], expected: Any) -> None:
    assert _required(**arguments) == expected


def test_claims_of_a_stateful_set_are_spread_over_places() -> None:
    firsts = [_required(name=f"data-web-{index}")[1][0] for index in range(4)]
    assert firsts in (["1", "2", "1", "2"], ["2", "1", "2", "1"])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"node": "d"}, "failed to get selected CSINode d"),
        ({"node": "a", "allowed": ["2"], "strict": True}, "is not in allowed topologies"),
        ({"node": "a", "allowed": ["2"]}, "is not in requisite"),
    ],
)
def test_a_node_that_cannot_have_the_volume_is_told(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(Problem, match=text):
        _required(**arguments)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ({"operator": "In", "values": ["n1"]}, True),
        ({"operator": "NotIn", "values": ["n1"]}, False),
        ({"operator": "Exists"}, True),
        ({"operator": "DoesNotExist"}, False),
    ],
)
def test_volumes_are_reached_from_the_nodes_that_they_name(expression: JsonObject, expected: bool) -> None:
    terms = [{"matchExpressions": [{"key": "node", **expression}]}]
    affinity = decode(VolumeNodeAffinity, {"required": {"nodeSelectorTerms": terms}})
    assert topology.is_accessible(affinity, {"node": "n1"}) is expected
    assert topology.is_accessible(None, {})


def test_secrets_are_named_by_templates() -> None:
    given = {
        f"{PREFIX}provisioner-secret-name": "${pvc.name}",
        f"{PREFIX}provisioner-secret-namespace": "${pvc.namespace}",
    }
    names, spaces = {"pvc.name": "c", "pvc.namespace": "ns"}, {"pvc.namespace": "ns"}
    found = parameters.secret_reference(parameters.PROVISIONER, given, names, spaces)
    assert found == SecretReference(name="c", namespace="ns")
    assert parameters.secret_reference(parameters.NODE_STAGE, given, names, spaces) is None
    default = {f"{PREFIX}secret-name": "d", f"{PREFIX}secret-namespace": "s"}
    found = parameters.secret_reference(parameters.NODE_STAGE, default, names, spaces, has_default=True)
    assert found == SecretReference(name="d", namespace="s")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            {"name": "a"},
            "either name and namespace for Provisioner secrets specified, Both must be specified",
        ),
        ({"name": "", "namespace": "b"}, "value of either namespace or name is empty"),
        ({"name": "${pv.name}", "namespace": "b"}, r'invalid tokens: \["pv.name"\]'),
        ({"name": "a", "namespace": "B"}, '"B" is not a valid namespace name'),
        ({"name": "${pvc.name}", "namespace": "b"}, "which is not a valid secret name"),
    ],
)
def test_secrets_that_are_named_wrongly_are_refused(given: dict[str, str], text: str) -> None:
    prefixed = {f"{PREFIX}provisioner-secret-{key}": value for key, value in given.items()}
    with pytest.raises(Problem, match=text):
        parameters.secret_reference(parameters.PROVISIONER, prefixed, {"pvc.name": "../x"}, {})


def test_reserved_parameters_that_nobody_knows_and_two_file_systems_are_refused() -> None:
    with pytest.raises(Problem, match=r'found unknown parameter key "csi\.storage\.k8s\.io/new"'):
        parameters.for_driver({f"{PREFIX}new": ""}, parameters.STORAGE_CLASS_KEYS)
    with pytest.raises(Problem, match='with both "fstype" and'):
        parameters.fs_type({"fsType": "a", f"{PREFIX}fstype": "b"}, "")
    assert parameters.fs_type({}, "ext4") == "ext4"


def test_names_are_made_of_uids() -> None:
    assert Naming().of("1-2-3") == "pvc-1-2-3"
    assert Naming("vol", 2).of("1-2-3") == "vol-12"
    assert manager_name("") == "external-provisioner"
    assert manager_name("n1") == "external-provisioner-n1"
    assert len(manager_name("n" * 200)) == 63


def test_events_do_not_shorten_the_wait_and_another_wish_ends_it() -> None:
    now = [0.0]
    retries = Retries(1.0, 300.0, lambda: now[0])
    assert [retries.failed("k", "wish") for _ in range(3)] == [1.0, 2.0, 4.0]
    now[0] = 3.0
    assert retries.remaining("k", "wish") == 1.0
    assert retries.remaining("k", "another wish") == 0.0
    assert retries.failed("k", "another wish", hopeless=True) == 300.0


def test_empty_members_are_removed_and_names_escaped() -> None:
    assert members_patch("/m", {"a/b": 1, "c": []}, {"c": [], "d~": 2}) == [
        {"op": "remove", "path": "/m/a~1b"},
        {"op": "add", "path": "/m/d~0", "value": 2},
    ]


def test_flags_are_those_of_the_parts_that_run() -> None:
    options = parse(
        ["provisioner,attacher", "-timeout=1m", "--strict-topology", "--feature-gates=Topology=false"]
    )
    assert options.of("provisioner", "timeout") == 60.0
    assert options.of("provisioner", "strict-topology") is True
    assert options.gate("provisioner", "Topology") is False
    assert parse(["provisioner,attacher"]).of("attacher", "timeout") == 15.0
    assert parse(["attacher", "--kube-api-qps=50"]).without_effect == ["--kube-api-qps"]
    assert parse(["liveness"]).any("csi-address") == "/run/csi/socket"


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["provisioner", "--unknown"], "unrecognized arguments: --unknown"),
        (["painter"], "no such part: painter"),
        (["attacher", "--health-port=1"], "--health-port belongs to liveness, not to attacher"),
        (["provisioner", "--timeout=long"], "--timeout"),
        (["provisioner", "--strict-topology=maybe"], "neither true nor false"),
        (["provisioner", "--feature-gates=Magic=true"], "unrecognized feature gate: Magic"),
        (["snapshotter", "--feature-gates=ReleaseLeaderElectionOnExit=false"], "is not supported"),
        (["registrar"], "registrar needs --kubelet-registration-path"),
        (["provisioner", "--node-deployment", "--leader-election"], "makes no sense with --node-deployment"),
    ],
)
def test_a_command_line_that_makes_no_sense_is_refused(
    argv: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(argv)
    assert ended.value.code == 2
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    ("annotations", "field", "expected"),
    [
        ({}, "cheap", "cheap"),
        ({BETA: "premium"}, "cheap", "premium"),
        ({BETA: ""}, "premium", ""),
        ({}, None, ""),
    ],
)
def test_a_claims_class_is_the_one_that_its_quota_counts(
    annotations: dict[str, str], field: str | None, expected: str
) -> None:
    document = {
        "metadata": {"annotations": annotations},
        "spec": {"storageClassName": field} if field else {},
    }
    assert class_of(decode(PersistentVolumeClaim, document)) == expected
    assert storage_class.class_of(document) == expected
