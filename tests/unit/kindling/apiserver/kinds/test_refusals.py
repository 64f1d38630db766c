"""What the smaller kinds refuse, each with its first message."""

from __future__ import annotations

import base64

import pytest
from tests.unit.kindling.apiserver.kinds.conftest import Kinds

from kubecore.json import JsonObject

REFUSALS: list[tuple[str, JsonObject, str]] = [
    (
        "configmaps",
        {"data": {"a b": "x"}},
        'data[a b]: Invalid value: "a b": a valid config key must consist of',
    ),
    (
        "configmaps",
        {"data": {"a": "x"}, "binaryData": {"a": "eA=="}},
        "duplicate of key present in binaryData",
    ),
    ("configmaps", {"data": {"a": "x" * 1048577}}, "[]: Too long: may not be more than 1048576 bytes"),
    ("secrets", {"type": "kubernetes.io/tls"}, "data[tls.crt]: Required value"),
    ("secrets", {"type": "kubernetes.io/basic-auth"}, "data[username]: Required value"),
    (
        "secrets",
        {"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": "e30x"}},
        'data[.dockerconfigjson]: Invalid value: "<secret contents redacted>"',
    ),
    *(
        (
            "secrets",
            {
                "type": "kubernetes.io/dockerconfigjson",
                "data": {".dockerconfigjson": base64.b64encode(text).decode()},
            },
            problem,
        )
        for text, problem in (
            (b"[" * 100_000, "invalid character '[' exceeded max depth"),
            (b'{"a":' + b"1" * 5000 + b"}", "cannot unmarshal number into Go value of type float64"),
            (b'{"a":NaN}', "invalid character 'N' looking for beginning of value"),
        )
    ),
    (
        "secrets",
        {"type": "kubernetes.io/service-account-token"},
        "metadata.annotations[kubernetes.io/service-account.name]: Required value",
    ),
    (
        "roles",
        {"rules": [{"apiGroups": [""], "resources": ["pods"]}]},
        "rules[0].verbs: Required value: verbs must",
    ),
    (
        "roles",
        {"rules": [{"nonResourceURLs": ["/x"], "verbs": ["get"]}]},
        'rules[0].nonResourceURLs: Invalid value: ["/x"]: namespaced rules cannot apply to non-resource URLs',
    ),
    (
        "clusterroles",
        {"aggregationRule": {"clusterRoleSelectors": []}},
        "aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required",
    ),
    ("rolebindings", {"roleRef": {"kind": "Role"}}, "roleRef.name: Required value"),
    (
        "clusterrolebindings",
        {"roleRef": {"kind": "Role", "name": "r"}},
        'roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole"',
    ),
    (
        "clusterrolebindings",
        {
            "roleRef": {"kind": "ClusterRole", "name": "r"},
            "subjects": [{"kind": "ServiceAccount", "name": "s"}],
        },
        "subjects[0].namespace: Required value",
    ),
    (
        "leases",
        {"spec": {"leaseDurationSeconds": 0}},
        "spec.leaseDurationSeconds: Invalid value: 0: must be greater",
    ),
    (
        "leases",
        {"spec": {"preferredHolder": "a"}},
        "spec.preferredHolder: Forbidden: may only be specified if",
    ),
    (
        "priorityclasses",
        {"value": 2000000000},
        "value: Forbidden: maximum allowed value of a user defined priority",
    ),
    (
        "priorityclasses",
        {"metadata": {"name": "system-mine"}, "value": 1},
        "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use "
        "only. error: system-mine is not a known system priority class",
    ),
    ("runtimeclasses", {"handler": "A"}, 'handler: Invalid value: "A": a lowercase RFC 1123 label'),
    (
        "resourcequotas",
        {"spec": {"hard": {"gpus": "1"}}},
        'spec.hard[gpus]: Invalid value: "gpus": must be a standard',
    ),
    (
        "resourcequotas",
        {"spec": {"hard": {"pods": "500m"}}},
        'spec.hard[pods]: Invalid value: "500m": must be an integer',
    ),
    (
        "resourcequotas",
        {"spec": {"hard": {"cpu": "-1"}}},
        'spec.hard[cpu]: Invalid value: "-1": must be greater than',
    ),
    (
        "resourcequotas",
        {"spec": {"scopes": ["Odd"]}},
        'spec.scopes: Invalid value: ["Odd"]: unsupported scope',
    ),
    (
        "resourcequotas",
        {"spec": {"scopes": ["BestEffort", "NotBestEffort"]}},
        'spec.scopes: Invalid value: ["BestEffort","NotBestEffort"]: conflicting scopes',
    ),
    (
        "limitranges",
        {"spec": {"limits": [{"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}}]}},
        'spec.limits[0].min[cpu]: Invalid value: "2": min value 2 is greater than max value 1',
    ),
    (
        "limitranges",
        {"spec": {"limits": [{"type": "Pod", "default": {"cpu": "1"}}]}},
        "spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod'",
    ),
    (
        "limitranges",
        {"spec": {"limits": [{"type": "Pod"}, {"type": "Pod"}]}},
        'spec.limits[1].type: Duplicate value: "Pod"',
    ),
    (
        "endpoints",
        {"subsets": [{}]},
        "subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`",
    ),
    (
        "endpoints",
        {"subsets": [{"addresses": [{"ip": "127.0.0.1"}]}]},
        'subsets[0].addresses[0].ip: Invalid value: "127.0.0.1": may not be in the loopback range',
    ),
    ("endpointslices", {}, "addressType: Required value"),
    (
        "endpointslices",
        {"addressType": "IPv4", "endpoints": [{"addresses": ["2001:db8::1"]}]},
        'endpoints[0].addresses: Invalid value: "2001:db8::1": must be an IPv4 address',
    ),
    (
        "endpointslices",
        {"addressType": "IPv4", "ports": [{"name": "a"}, {"name": "a"}]},
        'ports[1].name: Duplicate value: "a"',
    ),
    (
        "ingresses",
        {"spec": {}},
        "spec: Invalid value: null: either `defaultBackend` or `rules` must be specified",
    ),
    (
        "ingresses",
        {"spec": {"rules": [{"host": "192.0.2.1"}]}},
        'spec.rules[0].host: Invalid value: "192.0.2.1": must be a DNS name, not an IP address',
    ),
    (
        "ingresses",
        {"spec": {"rules": [{"http": {"paths": [{"path": "/", "pathType": "Odd", "backend": {}}]}}]}},
        'spec.rules[0].http.paths[0].pathType: Unsupported value: "Odd"',
    ),
    (
        "ingressclasses",
        {"spec": {"controller": "x"}},
        'spec.controller: Invalid value: "x": must be a domain-prefixed',
    ),
    (
        "networkpolicies",
        {"spec": {"podSelector": {}, "ingress": [{"from": [{}]}]}},
        "spec.ingress[0].from[0]: Required value: must specify a peer",
    ),
    (
        "networkpolicies",
        {"spec": {"podSelector": {}, "egress": [{"ports": [{"port": 80, "endPort": 79}]}]}},
        "spec.egress[0].ports[0].endPort: Invalid value: 80: must be greater than or equal to `port`",
    ),
    (
        "networkpolicies",
        {"spec": {"ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.0.0.0/8"]}}]}]}},
        'spec.ingress[0].from[0].ipBlock.except[0]: Invalid value: "10.0.0.0/8": '
        "must be a strict subset of `cidr`",
    ),
    ("servicecidrs", {"spec": {}}, "spec.cidrs: Required value: at least one CIDR required"),
    ("ipaddresses", {"spec": {}}, "spec.parentRef: Required value"),
    ("storageclasses", {"provisioner": ""}, "provisioner: Required value"),
    (
        "storageclasses",
        {"provisioner": "x", "reclaimPolicy": "Burn"},
        'reclaimPolicy: Unsupported value: "Burn"',
    ),
    ("csidrivers", {"spec": {"fsGroupPolicy": "Odd"}}, 'spec.fsGroupPolicy: Unsupported value: "Odd"'),
    (
        "csinodes",
        {"spec": {"drivers": [{"name": "a.b", "nodeID": ""}]}},
        "spec.drivers[0].nodeID: Required value",
    ),
    ("csidrivers", {"metadata": {"name": "a" * 64}}, "metadata.name: Too long: may not be more than 63"),
    (
        "volumeattachments",
        {"spec": {"attacher": "a.b", "nodeName": "n", "source": {}}},
        "spec.source: Required value: must specify exactly one of inlineVolumeSpec and persistentVolumeName",
    ),
    (
        "volumeattributesclasses",
        {"driverName": "a.b"},
        "parameters: Required value: must contain at least one",
    ),
    (
        "persistentvolumeclaims",
        {"spec": {"resources": {"requests": {"storage": "1Gi"}}}},
        "spec.accessModes: Required value: at least 1 access mode is required",
    ),
    (
        "persistentvolumeclaims",
        {"spec": {"accessModes": ["ReadWriteOnce"]}},
        "spec.resources[storage]: Required value",
    ),
    (
        "persistentvolumes",
        {"spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}},
        "spec: Required value: must specify a volume type",
    ),
    (
        "persistentvolumes",
        {
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": "1Gi"},
                "local": {"path": "/x"},
            }
        },
        "spec.nodeAffinity: Required value: Local volume requires node affinity",
    ),
    (
        "nodes",
        {"spec": {"taints": [{"key": "a", "effect": "Odd"}]}},
        'metadata.taints[0].effect: Unsupported value: "Odd"',
    ),
    (
        "nodes",
        {"spec": {"podCIDRs": ["10.1.0.0/24", "10.2.0.0/24"]}},
        'spec.podCIDRs: Invalid value: ["10.1.0.0/24","10.2.0.0/24"]: may specify no more than one CIDR',
    ),
    (
        "poddisruptionbudgets",
        {"spec": {"minAvailable": 1, "maxUnavailable": 1}},
        'spec: Invalid value: {"MinAvailable":1,"Selector":null,"MaxUnavailable":1,'
        '"UnhealthyPodEvictionPolicy":null}: minAvailable and maxUnavailable cannot be both set',
    ),
    (
        "poddisruptionbudgets",
        {"spec": {"minAvailable": "150%"}},
        'spec.minAvailable: Invalid value: "150%": must not be',
    ),
    (
        "horizontalpodautoscalers",
        {"spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "w"}}},
        "spec.maxReplicas: Required value: must be set and greater than 0",
    ),
    (
        "flowschemas",
        {"spec": {"matchingPrecedence": 20000}},
        "spec.matchingPrecedence: Invalid value: 20000: must not be greater than 10000",
    ),
    (
        "prioritylevelconfigurations",
        {"spec": {}},
        'spec.type: Unsupported value: "": supported values: "Exempt"',
    ),
    (
        "apiservices",
        {
            "metadata": {"name": "v1.x"},
            "spec": {"group": "y", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1},
        },
        'metadata.name: Invalid value: "v1.x": must be `spec.version+"."+spec.group`: "v1.y"',
    ),
    (
        "validatingwebhookconfigurations",
        {"webhooks": [{"name": "short", "clientConfig": {"url": "https://a.b/c"}}]},
        'webhooks[0].name: Invalid value: "short": should be a domain with at least three segments',
    ),
    *(
        (
            "validatingwebhookconfigurations",
            {
                "webhooks": [
                    {
                        "name": "a.example.com",
                        "clientConfig": client,
                        "sideEffects": "None",
                        "admissionReviewVersions": ["v1"],
                    }
                ]
            },
            f"webhooks[0].clientConfig{message}",
        )
        for client, message in (
            ({}, ": Required value: exactly one of url or service is required"),
            ({"url": ""}, ".url: Invalid value: \"\": 'https' is the only allowed URL scheme"),
            ({"url": "https:///a"}, '.url: Invalid value: "": host must be specified'),
            (
                {"service": {"namespace": "a"}},
                ".service.name: Required value: service name is required",
            ),
            (
                {"service": {"namespace": "a", "name": "b", "path": "/a//b"}},
                '.service.path: Invalid value: "/a//b": segment[1] may not be empty',
            ),
            (
                {"service": {"namespace": "a", "name": "b", "path": "/A"}},
                '.service.path: Invalid value: "/A": segment[0]: a lowercase RFC 1123 subdomain',
            ),
        )
    ),
    (
        "validatingadmissionpolicies",
        {
            "spec": {
                "matchConstraints": {
                    "resourceRules": [
                        {
                            "apiGroups": [""],
                            "apiVersions": ["v1"],
                            "operations": ["CREATE"],
                            "resources": ["pods"],
                        }
                    ]
                },
                "auditAnnotations": [{"valueExpression": "'x'"}],
            }
        },
        'spec.auditAnnotations[0].key: Invalid value: "x/": name part must be non-empty',
    ),
    (
        "certificatesigningrequests",
        {"spec": {"signerName": "a.b/c", "usages": ["client auth"], "request": "eA=="}},
        "spec.request: Invalid value: [0x78]: PEM block type must be CERTIFICATE REQUEST",
    ),
]


@pytest.mark.parametrize(
    ("plural", "document", "message"), REFUSALS, ids=[f"{row[0]}-{at}" for at, row in enumerate(REFUSALS)]
)
def test_what_makes_no_sense_is_refused(
    kinds: Kinds, plural: str, document: JsonObject, message: str
) -> None:
    _, problems = kinds.create(plural, document)
    assert problems
    assert message in problems[0]
