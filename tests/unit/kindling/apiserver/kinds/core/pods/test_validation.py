"""What makes no pod: each rule with its message."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.kindling.apiserver.kinds.conftest import Kinds

from kubecore.json import JsonObject

QUALIFIED = "name part must consist of alphanumeric characters"
LABEL = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-'"


def refuse(kinds: Kinds, spec: JsonObject) -> list[str]:
    document = {"spec": {"containers": [{"name": "main", "image": "a:1"}], **spec}}
    found: list[str] = kinds.create("pods", document)[1]
    return found


def with_container(**fields: Any) -> JsonObject:
    return {"containers": [{"name": "main", "image": "a:1", **fields}]}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"containers": []}, "spec.containers: Required value"),
        ({"containers": [{"name": "a"}]}, "spec.containers[0].image: Required value"),
        ({"containers": [{"image": "a"}]}, "spec.containers[0].name: Required value"),
        (
            {"containers": [{"name": "A", "image": "a"}]},
            f'spec.containers[0].name: Invalid value: "A": {LABEL}',
        ),
        (
            {"containers": [{"name": "a", "image": "a"}, {"name": "a", "image": "a"}]},
            'spec.containers[1].name: Duplicate value: "a"',
        ),
        (
            with_container(imagePullPolicy="Now"),
            'spec.containers[0].imagePullPolicy: Unsupported value: "Now": '
            'supported values: "Always", "IfNotPresent", "Never"',
        ),
        (
            {"restartPolicy": "Maybe"},
            'spec.restartPolicy: Unsupported value: "Maybe": '
            'supported values: "Always", "OnFailure", "Never"',
        ),
        ({"activeDeadlineSeconds": 0}, "spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and"),
        ({"hostname": "A_b"}, f'spec.hostname: Invalid value: "A_b": {LABEL}'),
        ({"nodeSelector": {"bad key": "x"}}, f'spec.nodeSelector: Invalid value: "bad key": {QUALIFIED}'),
        (
            {"dnsPolicy": "None"},
            "spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None",
        ),
        (
            {"dnsPolicy": "None", "dnsConfig": {"searches": ["a.b"]}},
            "spec.dnsConfig.nameservers: Required value: must provide at least one DNS nameserver",
        ),
        (
            {"ephemeralContainers": [{"name": "e", "image": "a"}]},
            "spec.ephemeralContainers: Forbidden: cannot be set on create",
        ),
        (
            {"nodeName": "n", "schedulingGates": [{"name": "example.com/a"}]},
            "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared",
        ),
        (
            {"hostUsers": False, "hostNetwork": True},
            "spec.hostNetwork: Forbidden: when `hostUsers` is false",
        ),
        (
            {"shareProcessNamespace": True, "hostPID": True},
            "spec.shareProcessNamespace: Invalid value: true: "
            "ShareProcessNamespace and HostPID cannot both be enabled",
        ),
    ],
)
def test_a_pod_that_makes_no_sense_is_refused(kinds: Kinds, spec: JsonObject, message: str) -> None:
    (found,) = refuse(kinds, spec)
    assert found.startswith(message)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"ports": [{"containerPort": 0}]}, "ports[0].containerPort: Required value"),
        (
            {"ports": [{"containerPort": 70000}]},
            "ports[0].containerPort: Invalid value: 70000: must be between 1 and",
        ),
        ({"ports": [{"containerPort": 1, "protocol": "tcp"}]}, 'ports[0].protocol: Unsupported value: "tcp"'),
        ({"env": [{"name": ""}]}, "env[0].name: Required value"),
        ({"env": [{"name": "A=B"}]}, 'env[0].name: Invalid value: "A=B": '),
        (
            {"env": [{"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]},
            'env[0].valueFrom: Invalid value: "": may not be specified when `value` is not empty',
        ),
        (
            {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nothing"}}}]},
            'env[0].valueFrom.fieldRef.fieldPath: Invalid value: "spec.nothing": error converting fieldPath: '
            "field label not supported: spec.nothing",
        ),
        (
            {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s"}}}]},
            "env[0].valueFrom.secretKeyRef.key: Required value",
        ),
        ({"volumeMounts": [{"name": "v", "mountPath": "/x"}]}, 'volumeMounts[0].name: Not found: "v"'),
        ({"livenessProbe": {}}, "livenessProbe: Required value: must specify a handler type"),
        (
            {"livenessProbe": {"tcpSocket": {"port": 80}, "successThreshold": 2}},
            "livenessProbe.successThreshold: Invalid value: 2: must be 1",
        ),
        (
            {"readinessProbe": {"tcpSocket": {"port": 80}, "terminationGracePeriodSeconds": 1}},
            "readinessProbe.terminationGracePeriodSeconds: Invalid value: 1: "
            "must not be set for readinessProbes",
        ),
        (
            {"livenessProbe": {"tcpSocket": {"port": 80}, "exec": {"command": ["a"]}}},
            "livenessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type",
        ),
        (
            {"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}},
            'resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1',
        ),
        (
            {"resources": {"limits": {"gpu": "1"}}},
            'resources.limits[gpu]: Invalid value: "gpu": must be a standard resource type',
        ),
        (
            {"securityContext": {"runAsUser": -1}},
            "securityContext.runAsUser: Invalid value: -1: must be between 0 and",
        ),
        (
            {"securityContext": {"seccompProfile": {"type": "Localhost"}}},
            "securityContext.seccompProfile.localhostProfile: Required value",
        ),
        (
            {"terminationMessagePolicy": "Loud"},
            'terminationMessagePolicy: Unsupported value: "Loud": '
            'supported values: "File", "FallbackToLogsOnError"',
        ),
    ],
)
def test_a_container_that_makes_no_sense_is_refused(kinds: Kinds, fields: JsonObject, message: str) -> None:
    found = refuse(kinds, with_container(**fields))
    assert found
    assert found[0].startswith(f"spec.containers[0].{message}")


def test_requests_of_devices_must_equal_their_limits(kinds: Kinds) -> None:
    name = "devices.example.com/thing"
    fine = with_container(resources={"limits": {name: "1"}})
    assert refuse(kinds, fine) == []
    fraction = with_container(resources={"limits": {name: "500m"}})
    assert any(text.endswith("must be an integer") for text in refuse(kinds, fraction))


@pytest.mark.parametrize(
    ("volume", "message"),
    [
        ({"hostPath": {"path": ""}}, "hostPath.path: Required value"),
        (
            {"hostPath": {"path": "/a/../b"}},
            "hostPath.path: Invalid value: \"/a/../b\": must not contain '..'",
        ),
        ({"configMap": {}}, "configMap.name: Required value"),
        (
            {"configMap": {"name": "c", "items": [{"key": "k", "path": "/p"}]}},
            "configMap.items[0].path: Invalid value",
        ),
        (
            {"secret": {"secretName": "s", "defaultMode": 512}},
            "secret.defaultMode: Invalid value: 512: must be a number",
        ),
        ({"persistentVolumeClaim": {}}, "persistentVolumeClaim.claimName: Required value"),
        ({"csi": {"driver": ""}}, "csi.driver: Required value"),
        (
            {"emptyDir": {}, "hostPath": {"path": "/x"}},
            "hostPath: Forbidden: may not specify more than 1 volume type",
        ),
        ({"ephemeral": {}}, "ephemeral.volumeClaimTemplate: Required value"),
        ({"nfs": {"server": "h", "path": "x"}}, 'nfs.path: Invalid value: "x": must be an absolute path'),
        (
            {"projected": {"sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 1}}]}},
            "projected.sources[0].serviceAccountToken.expirationSeconds: Invalid value: 1: "
            "may not specify a duration less than 10 minutes",
        ),
    ],
)
def test_a_volume_that_makes_no_sense_is_refused(kinds: Kinds, volume: JsonObject, message: str) -> None:
    found = refuse(kinds, {"volumes": [{"name": "v", **volume}]})
    assert found[0].startswith(f"spec.volumes[0].{message}")


def test_volumes_have_names_of_their_own(kinds: Kinds) -> None:
    assert refuse(kinds, {"volumes": [{"name": "v"}, {"name": "v"}]}) == [
        'spec.volumes[1].name: Duplicate value: "v"'
    ]


def test_block_devices_come_from_claims(kinds: Kinds) -> None:
    spec = with_container(volumeDevices=[{"name": "v", "devicePath": "/dev/x"}])
    claimed = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}
    assert refuse(kinds, {**spec, **claimed}) == []
    (found,) = refuse(kinds, {**spec, "volumes": [{"name": "v", "emptyDir": {}}]})
    assert "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode" in found


@pytest.mark.parametrize(
    ("toleration", "message"),
    [
        ({"operator": "Equal"}, "operator must be Exists when `key` is empty"),
        ({"key": "a", "operator": "Exists", "value": "x"}, "value must be empty when `operator` is 'Exists'"),
        ({"key": "a", "effect": "NoSchedule", "tolerationSeconds": 1}, "effect must be 'NoExecute'"),
        ({"key": "a", "effect": "Never"}, 'supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"'),
    ],
)
def test_tolerations_make_sense(kinds: Kinds, toleration: JsonObject, message: str) -> None:
    (found,) = refuse(kinds, {"tolerations": [toleration]})
    assert found.startswith("spec.tolerations[0].")
    assert message in found


def test_required_node_affinity_has_terms(kinds: Kinds) -> None:
    spec: JsonObject = {
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}
        }
    }
    (found,) = refuse(kinds, spec)
    assert found.endswith("nodeSelectorTerms: Required value: must have at least one node selector term")


def test_weights_are_from_one_to_a_hundred(kinds: Kinds) -> None:
    term = {"weight": 0, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname"}}
    spec = {"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}}
    (found,) = refuse(kinds, spec)
    assert found.endswith("weight: Invalid value: 0: must be in the range 1-100")


def test_sidecars_may_have_probes_other_init_containers_may_not(kinds: Kinds) -> None:
    init = {"name": "i", "image": "a:1", "readinessProbe": {"tcpSocket": {"port": 80}}}
    assert refuse(kinds, {"initContainers": [{**init, "restartPolicy": "Always"}]}) == []
    (found,) = refuse(kinds, {"initContainers": [init]})
    assert found.endswith("may not be set for init containers without restartPolicy=Always")


def test_pods_are_warned_about_what_is_old_or_double(kinds: Kinds) -> None:
    document = {
        "metadata": {"name": "a.b"},
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "a:1",
                    "env": [
                        {"name": "A", "value": "1"},
                        {"name": "A", "value": "2"},
                        {"name": "A", "value": "$(A)3"},
                    ],
                    "ports": [{"containerPort": 80}, {"containerPort": 80}],
                }
            ],
            "nodeSelector": {"beta.kubernetes.io/os": "linux"},
            "volumes": [{"name": "v", "gitRepo": {"repository": "x"}}],
        },
    }
    obj = kinds.read("pods", document)
    strategy = kinds.definition("pods").strategy
    found = strategy.warnings(kinds.context("pods"), obj, None)
    assert found == [
        "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; "
        "a DNS label is recommended: [must not contain dots]",
        'spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead',
        "spec.volumes[0].gitRepo: deprecated in v1.11, and disabled by default in v1.33+",
        'spec.containers[0].env[1]: hides previous definition of "A", which may be dropped when using apply',
        "spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]",
    ]
    assert strategy.warnings(kinds.context("pods"), obj, obj) == []
