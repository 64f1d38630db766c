"""What pods may ask for: claims of devices, amounts together, settings of an operating system."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.kindling.apiserver.kinds.conftest import Kinds

from kubecore.json import JsonObject

_NOT_FOUND = "must be one of the names in pod.spec.resourceClaims"


def _container(**fields: Any) -> JsonObject:
    return {"name": "c", "image": "i", **fields}


def _problems(kinds: Kinds, container: JsonObject | None = None, **spec: Any) -> list[str]:
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [_container(**(container or {}))], **spec}}
    return kinds.create("pods", pod)[1]


@pytest.mark.parametrize(
    ("claim", "problem"),
    [
        ({"resourceClaimName": "a"}, "name: Required value"),
        ({"name": "a_b", "resourceClaimName": "a"}, 'name: Invalid value: "a_b": a lowercase RFC 1123 label'),
        (
            {"name": "a"},
            '{"Name":"a","ResourceClaimName":null,"ResourceClaimTemplateName":null}: must specify one of',
        ),
        ({"name": "a", "resourceClaimName": "a", "resourceClaimTemplateName": "b"}, "at most one of"),
        ({"name": "a", "resourceClaimName": "A"}, 'resourceClaimName: Invalid value: "A": a lowercase'),
        ({"name": "a", "resourceClaimTemplateName": "A"}, 'resourceClaimTemplateName: Invalid value: "A"'),
    ],
)
def test_a_claim_of_a_pod_is_named_and_is_there_or_made(
    kinds: Kinds, claim: JsonObject, problem: str
) -> None:
    (found,) = _problems(kinds, resourceClaims=[claim])
    assert problem in found


def test_claims_of_containers_are_claims_of_their_pod(kinds: Kinds) -> None:
    known = [{"name": "b", "resourceClaimName": "x"}, {"name": "a", "resourceClaimName": "y"}]
    wanted = {"resources": {"claims": [{"name": "b", "request": "r"}, {"name": "b", "request": "s"}]}}
    assert _problems(kinds, wanted, resourceClaims=known) == []
    at = "spec.containers[0].resources.claims"
    other = {"resources": {"claims": [{"name": "z"}, {"name": "b"}, {"name": "b"}]}}
    assert _problems(kinds, other, resourceClaims=known) == [
        f'{at}[0]: Not found: "z": {_NOT_FOUND}: a, b',
        f'{at}[2]: Duplicate value: "b"',
    ]
    assert _problems(kinds, {"resources": {"claims": [{"name": "z"}]}}) == [
        f'{at}[0]: Not found: "z": {_NOT_FOUND} which is empty'
    ]


def test_two_claims_of_a_pod_have_two_names(kinds: Kinds) -> None:
    claim = {"name": "a", "resourceClaimName": "x"}
    assert _problems(kinds, resourceClaims=[claim, claim]) == [
        'spec.resourceClaims[1].name: Duplicate value: "a"'
    ]


def test_claims_made_from_templates_get_names_that_are_names(kinds: Kinds) -> None:
    long = "a" * 60
    pod = {
        "metadata": {"name": "p" * 200},
        "spec": {
            "containers": [_container()],
            "resourceClaims": [{"name": long, "resourceClaimTemplateName": "t"}],
        },
    }
    (found,) = kinds.create("pods", pod)[1]
    assert "final ResourceClaim name is invalid: must be no more than 253" in found


@pytest.mark.parametrize(
    ("resources", "problem"),
    [
        ({"requests": {"cpu": "1"}}, 'requests[cpu]: Invalid value: "1": must be greater than or equal'),
        ({"limits": {"cpu": "1"}}, 'containers[0][cpu].limits: Invalid value: "4": must be less than'),
        ({"limits": {"ephemeral-storage": "1"}}, 'supported values: "cpu", "hugepages-", "memory"'),
        ({"limits": {"strange": "1"}}, "must be a standard resource type or fully qualified"),
    ],
)
def test_a_pod_asks_for_what_its_containers_do(kinds: Kinds, resources: JsonObject, problem: str) -> None:
    wanted = {"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "4"}}}
    found = [each for each in _problems(kinds, wanted, resources=resources) if problem in each]
    assert len(found) == 1
    assert found[0].startswith("spec.resources.")


def test_containers_of_init_that_end_do_not_add_up(kinds: Kinds) -> None:
    def asks(cpu: str, **fields: Any) -> JsonObject:
        return _container(resources={"requests": {"cpu": cpu}}, **fields)

    init = [asks("3") | {"name": "i"}, asks("1", restartPolicy="Always") | {"name": "s"}]
    resources = {"resources": {"requests": {"cpu": "2"}}}
    assert _problems(kinds, resources, initContainers=init, resources={"requests": {"cpu": "3"}}) == []
    (found,) = _problems(kinds, resources, initContainers=init, resources={"requests": {"cpu": "2500m"}})
    assert found.endswith("aggregate container requests of 3")


def test_huge_pages_come_whole_and_with_memory(kinds: Kinds) -> None:
    at = "spec.containers[0].resources"
    pages = {"resources": {"limits": {"hugepages-2Mi": "3Mi"}, "requests": {"hugepages-2Mi": "3Mi"}}}
    text = 'Invalid value: "3Mi": 3Mi is not positive integer multiple of hugepages-2Mi'
    assert _problems(kinds, pages) == [
        f"{at}.limits[hugepages-2Mi]: {text}",
        f"{at}.requests[hugepages-2Mi]: {text}",
        f"{at}: Forbidden: HugePages require cpu or memory",
    ]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"gmsaCredentialSpecName": "A"}, 'gmsaCredentialSpecName: Invalid value: "A": a lowercase'),
        ({"gmsaCredentialSpec": ""}, "gmsaCredentialSpec cannot be an empty string"),
        ({"runAsUserName": ""}, "runAsUserName cannot be an empty string"),
        ({"runAsUserName": "a\tb"}, "runAsUserName cannot contain control characters"),
        ({"runAsUserName": "a\\b\\c"}, "runAsUserName cannot contain more than one backslash"),
        ({"runAsUserName": ":\\b"}, "runAsUserName's Domain doesn't match the NetBios nor the DNS format"),
        ({"runAsUserName": "a\\"}, "runAsUserName's User cannot be empty"),
        ({"runAsUserName": ".. "}, "runAsUserName's User cannot contain only periods or spaces"),
        ({"runAsUserName": "a@b"}, "runAsUserName's User cannot contain the following characters"),
        ({"runAsUserName": "a" * 105}, "runAsUserName's User length must not be longer than 104 characters"),
    ],
)
def test_options_of_windows_make_sense(kinds: Kinds, options: JsonObject, problem: str) -> None:
    (of_pod,) = _problems(kinds, securityContext={"windowsOptions": options})
    (of_container,) = _problems(kinds, {"securityContext": {"windowsOptions": options}})
    assert problem in of_pod and problem in of_container


def test_processes_of_the_node_are_all_of_a_pod_and_on_its_network(kinds: Kinds) -> None:
    whole = {"windowsOptions": {"hostProcess": True}}
    assert _problems(kinds, securityContext=whole) == [
        "spec.hostNetwork: Invalid value: false: "
        "hostNetwork must be true if pod contains any hostProcess containers"
    ]  # fmt: skip
    found = _problems(
        kinds, {"securityContext": {"windowsOptions": {"hostProcess": False}}}, securityContext=whole
    )
    assert found == [
        "spec.containers[0].securityContext.windowsOptions.hostProcess: Invalid value: false: "
        "pod hostProcess value must be identical if both are specified, was true"
    ]


def test_a_system_refuses_what_it_does_not_know(kinds: Kinds) -> None:
    security = {"securityContext": {"privileged": True, "runAsUser": 1}}
    assert _problems(kinds, security, os={"name": "windows"}, hostPID=True) == [
        "spec.hostPID: Forbidden: cannot be set for a windows pod",
        "spec.containers[0].securityContext.privileged: Forbidden: cannot be set for a windows pod",
        "spec.containers[0].securityContext.runAsUser: Forbidden: cannot be set for a windows pod",
    ]
    assert _problems(kinds, os={"name": "linux"}, securityContext={"windowsOptions": {}}) == [
        "spec.securityContext.windowsOptions: Forbidden: windows options cannot be set for a linux pod"
    ]


def test_all_of_proc_is_for_pods_with_users_of_their_own(kinds: Kinds) -> None:
    unmasked = {"securityContext": {"procMount": "Unmasked"}}
    assert _problems(kinds, unmasked) == [
        'spec.containers[0].securityContext.procMount: Invalid value: "Unmasked": '
        "`hostUsers` must be false to use `Unmasked`"
    ]
    assert _problems(kinds, unmasked, hostUsers=False) == []


def test_overheads_are_amounts(kinds: Kinds) -> None:
    assert _problems(kinds, overhead={"cpu": "-1"}) == [
        'spec.overhead.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0'
    ]


def test_volumes_are_labelled_in_a_known_way(kinds: Kinds) -> None:
    (found,) = _problems(kinds, securityContext={"seLinuxChangePolicy": "Odd"})
    assert found.endswith('Unsupported value: "Odd": supported values: "MountOption", "Recursive"')


def _spread(**fields: Any) -> JsonObject:
    return {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", **fields}


def test_keys_of_labels_become_requirements_for_the_pods_own(kinds: Kinds) -> None:
    term = {"topologyKey": "z", "labelSelector": {}, "matchLabelKeys": ["a"], "mismatchLabelKeys": ["b", "c"]}
    rules = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    spread = _spread(labelSelector={}, matchLabelKeys=["a"])
    pod = {
        "metadata": {"name": "p", "labels": {"a": "1", "b": "2"}},
        "spec": {"containers": [_container()], "affinity": rules, "topologySpreadConstraints": [spread]},
    }
    made, problems = kinds.create("pods", pod)
    assert problems == []
    (found,) = made["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    same = {"key": "a", "operator": "In", "values": ["1"]}
    other = {"key": "b", "operator": "NotIn", "values": ["2"]}
    assert found["labelSelector"] == {"matchExpressions": [same, other]}
    (constraint,) = made["spec"]["topologySpreadConstraints"]
    assert constraint["labelSelector"] == {"matchExpressions": [same]}


def test_a_key_is_not_of_the_selector_as_well(kinds: Kinds) -> None:
    spread = _spread(labelSelector={"matchLabels": {"a": "1"}}, matchLabelKeys=["a"])
    pod = {
        "metadata": {"name": "p", "labels": {"a": "1"}},
        "spec": {"containers": [_container()], "topologySpreadConstraints": [spread]},
    }
    assert kinds.create("pods", pod)[1] == [
        'spec.topologySpreadConstraints[0][0]: Invalid value: "a": '
        "exists in both matchLabelKeys and labelSelector"
    ]


def test_of_equal_spread_constraints_the_first_is_told(kinds: Kinds) -> None:
    found = _problems(kinds, topologySpreadConstraints=[_spread(), _spread()])
    assert found == [
        "spec.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}: "
        'Duplicate value: "{zone, DoNotSchedule}"'
    ]
