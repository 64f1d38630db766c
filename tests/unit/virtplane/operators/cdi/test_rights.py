"""What the operator and the components may do: enough, and no more than that of some."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace

import pytest
from tests.support.cdi_operator import SETTINGS
from tests.support.roles import rights

from kindling.apiserver.registry.admission import AuthorizationQuery
from kindling.apiserver.registry.context import UserInfo
from kubecore.json import JsonObject
from virtplane.api.cdi_v1beta1.cdi import CDI
from virtplane.components import CDI_COMPONENTS, COMPONENTS
from virtplane.operators.cdi import component_rights, manifests, operator_rights, policies, webhooks
from virtplane.operators.cdi.component_rights import controller_namespace_rules, controller_rules
from virtplane.operators.cdi.product import PRODUCT, Parameters
from virtplane.operators.cdi.user_roles import user_roles
from virtplane.operators.kit.webhooks import Endpoint

READ = "get list watch"
PARAMETERS = Parameters(SETTINGS, CDI())


def _may(rules: Iterable[JsonObject], group: str, resource: str, verb: str) -> bool:
    return any(
        group in rule.get("apiGroups", ())
        and {resource, "*"} & set(rule.get("resources", ()))
        and {verb, "*"} & set(rule["verbs"])
        for rule in rules
    )


@pytest.mark.parametrize(
    ("group", "resources", "verbs"),
    [
        pytest.param("", "events", "create patch", marks=pytest.mark.feature("INS-64")),
        pytest.param(
            "",
            "persistentvolumeclaims",
            f"{READ} create update delete deletecollection patch",
            marks=pytest.mark.feature("INS-65"),
        ),
        pytest.param("", "persistentvolumes", f"{READ} update", marks=pytest.mark.feature("INS-66")),
        pytest.param(
            "",
            "persistentvolumeclaims/finalizers pods/finalizers",
            "update",
            marks=pytest.mark.feature("INS-67"),
        ),
        pytest.param("", "pods services", f"{READ} create delete", marks=pytest.mark.feature("INS-68")),
        pytest.param("", "configmaps", "get create", marks=pytest.mark.feature("INS-69")),
        pytest.param(
            "storage.k8s.io", "storageclasses csidrivers", READ, marks=pytest.mark.feature("INS-70")
        ),
        pytest.param("config.openshift.io", "proxies", READ, marks=pytest.mark.feature("INS-71")),
        pytest.param(
            "snapshot.storage.k8s.io",
            "volumesnapshots volumesnapshotcontents",
            f"{READ} create delete",
            marks=pytest.mark.feature("INS-73"),
        ),
        pytest.param(
            "snapshot.storage.k8s.io",
            "volumesnapshots",
            "update deletecollection",
            marks=pytest.mark.feature("INS-74"),
        ),
        pytest.param(
            "apiextensions.k8s.io", "customresourcedefinitions", READ, marks=pytest.mark.feature("INS-75")
        ),
        pytest.param("scheduling.k8s.io", "priorityclasses", READ, marks=pytest.mark.feature("INS-76")),
        pytest.param("image.openshift.io", "imagestreams", READ, marks=pytest.mark.feature("INS-77")),
        pytest.param("", "secrets", "create", marks=pytest.mark.feature("INS-78")),
        pytest.param(
            "kubevirt.io", "virtualmachines/finalizers", "update", marks=pytest.mark.feature("INS-79")
        ),
    ],
)
def test_controllers_may_do_what_upstreams_may(group: str, resources: str, verbs: str) -> None:
    rules = controller_rules()
    missing = [
        (resource, verb)
        for resource in resources.split()
        for verb in verbs.split()
        if not _may(rules, group, resource, verb)
    ]
    assert missing == []


def test_controllers_may_open_the_gates_of_pods_and_change_them_no_further() -> None:
    """Whoever creates gated pods must be able to patch them, or they never start (decision 034)."""
    rules = controller_rules()
    verbs = ("update", "patch", "deletecollection")
    assert [verb for verb in verbs if _may(rules, "", "pods", verb)] == ["patch"]


@pytest.mark.parametrize(
    ("group", "resource", "verbs"),
    [
        pytest.param("", "configmaps", f"{READ} create update delete", marks=pytest.mark.feature("INS-87")),
        pytest.param("", "secrets", READ, marks=pytest.mark.feature("INS-88")),
        pytest.param(
            "batch", "cronjobs", f"{READ} create update delete", marks=pytest.mark.feature("INS-89")
        ),
        pytest.param("batch", "jobs", "create delete list watch", marks=pytest.mark.feature("INS-90")),
        pytest.param(
            "coordination.k8s.io", "leases", "get create update", marks=pytest.mark.feature("INS-91")
        ),
        pytest.param("networking.k8s.io", "ingresses", READ, marks=pytest.mark.feature("INS-92")),
        pytest.param("route.openshift.io", "routes", READ, marks=pytest.mark.feature("INS-93")),
    ],
)
def test_controllers_may_do_in_their_namespace_what_upstreams_may(
    group: str, resource: str, verbs: str
) -> None:
    rules = controller_namespace_rules()
    assert [verb for verb in verbs.split() if not _may(rules, group, resource, verb)] == []


@pytest.mark.parametrize(
    ("group", "resource", "verb"),
    [
        ("cdi.kubevirt.io", "datavolumes/source", "create"),
        ("cdi.kubevirt.io", "cdis", "update"),
        ("", "secrets", "get"),
        ("", "secrets", "list"),
    ],
)
def test_controllers_may_not_clone_for_themselves_nor_read_secrets_of_users(
    group: str, resource: str, verb: str
) -> None:
    assert not _may(controller_rules(), group, resource, verb)


def test_the_api_server_reads_no_secret_but_its_key() -> None:
    assert not _may(component_rights.api_server_rules(), "", "secrets", "get")
    readers = [
        rule.get("resourceNames")
        for rule in component_rights.api_server_namespace_rules()
        if "get" in rule["verbs"]
    ]
    assert readers == [["cdi-api-signing-key"]]


def test_the_operator_has_what_it_grants() -> None:
    cluster = operator_rights.cluster_rules()
    for document in [*component_rights.component_rights(PARAMETERS), *user_roles(PARAMETERS)]:
        held = cluster if document["kind"] == "ClusterRole" else cluster + operator_rights.namespace_rules()
        for rule in document.get("rules", ()):
            name = document["metadata"]["name"]
            if "nonResourceURLs" in rule or "resourceNames" in rule:
                assert rule in held, name
                continue
            missing = [
                (group, resource, verb)
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
                if not _may(held, group, resource, verb)
            ]
            assert missing == [], name


@pytest.mark.parametrize(
    ("group", "resources", "verbs"),
    [
        pytest.param(
            "rbac.authorization.k8s.io",
            "clusterrolebindings clusterroles",
            f"{READ} create update delete",
            marks=pytest.mark.feature("INS-56"),
        ),
        pytest.param(
            "security.openshift.io",
            "securitycontextconstraints",
            f"{READ} create update",
            marks=pytest.mark.feature("INS-57"),
        ),
        pytest.param(
            "apiextensions.k8s.io",
            "customresourcedefinitions customresourcedefinitions/status",
            f"{READ} create update delete",
            marks=pytest.mark.feature("INS-58"),
        ),
        pytest.param(
            "admissionregistration.k8s.io",
            "validatingwebhookconfigurations mutatingwebhookconfigurations",
            "create list watch",
            marks=pytest.mark.feature("INS-60"),
        ),
        pytest.param(
            "apiregistration.k8s.io",
            "apiservices",
            f"{READ} create update delete",
            marks=pytest.mark.feature("INS-63"),
        ),
    ],
)
def test_the_operator_may_do_what_upstreams_may(group: str, resources: str, verbs: str) -> None:
    rules = operator_rights.cluster_rules()
    pairs = [(resource, verb) for resource in resources.split() for verb in verbs.split()]
    assert [pair for pair in pairs if not _may(rules, group, *pair)] == []


@pytest.mark.parametrize(
    ("group", "resources", "verbs"),
    [
        pytest.param(
            "rbac.authorization.k8s.io",
            "rolebindings roles",
            f"{READ} create update delete",
            marks=pytest.mark.feature("INS-80"),
        ),
        pytest.param(
            "",
            "serviceaccounts configmaps events secrets services",
            f"{READ} create update patch delete",
            marks=pytest.mark.feature("INS-81"),
        ),
        pytest.param(
            "apps",
            "deployments deployments/finalizers",
            f"{READ} create update delete",
            marks=pytest.mark.feature("INS-82"),
        ),
        pytest.param(
            "route.openshift.io",
            "routes routes/custom-host",
            f"{READ} create update",
            marks=pytest.mark.feature("INS-83"),
        ),
        pytest.param("config.openshift.io", "proxies", READ, marks=pytest.mark.feature("INS-84")),
        pytest.param(
            "monitoring.coreos.com",
            "servicemonitors prometheusrules",
            f"{READ} create delete update patch",
            marks=pytest.mark.feature("INS-85"),
        ),
        pytest.param(
            "coordination.k8s.io", "leases", "get create update", marks=pytest.mark.feature("INS-86")
        ),
    ],
)
def test_the_operator_may_do_in_its_namespace_what_upstreams_may(
    group: str, resources: str, verbs: str
) -> None:
    """As the API server answers; proxies belong to no namespace."""
    authorizer = rights(operator_rights.operator_rights(SETTINGS))
    user = UserInfo(f"system:serviceaccount:{SETTINGS.namespace}:cdi-operator")
    namespace = "" if group == "config.openshift.io" else SETTINGS.namespace
    refused = []
    for pair in itertools.product(resources.split(), verbs.split()):
        resource, _, subresource = pair[0].partition("/")
        query = AuthorizationQuery(user, pair[1], group, "v1", resource, subresource, namespace)
        if not authorizer.authorize(query)[0]:
            refused.append(pair)
    assert refused == []
    elsewhere = AuthorizationQuery(user, "delete", "apps", "v1", "deployments", "", "default")
    assert not authorizer.authorize(elsewhere)[0]


@pytest.mark.feature("INS-61", "INS-62")
def test_the_operator_changes_no_webhooks_of_others() -> None:
    rules = [
        rule
        for rule in operator_rights.cluster_rules()
        if "admissionregistration.k8s.io" in rule.get("apiGroups", ()) and "update" in rule["verbs"]
    ]
    names = {name for rule in rules for name in rule["resourceNames"]}
    endpoint = Endpoint(PRODUCT, "cdi", "cdi-api", "secret", "")
    documents = webhooks.configurations(endpoint, must_guard_deletion=False)
    assert names == {document["metadata"]["name"] for document in documents}


def test_the_operator_comes_with_a_deployment_unless_it_shares_a_process() -> None:
    objects = manifests.install_objects(SETTINGS)
    assert objects[0]["metadata"]["name"] == "cdis.cdi.kubevirt.io"
    (deployment,) = (document for document in objects if document["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["virtplane", "run", "cdi-operator"]
    selector = deployment["spec"]["selector"]["matchLabels"]
    assert selector.items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
    compact = manifests.install_objects(replace(SETTINGS, layout="compact"))
    assert "Deployment" not in [document["kind"] for document in compact]


def test_network_policies_let_through_what_cdi_needs() -> None:
    found = {document["metadata"]["name"]: document for document in policies.network_policies("cdi")}
    assert set(found) == {
        "cdi-allow-ingress-to-metrics",
        "cdi-allow-uploadproxy-communications",
        "cdi-allow-cdi-api-webhook-server",
        "cdi-allow-cdi-deployment-importer-metrics",
        "cdi-allow-egress-from-poller",
    }
    (rule,) = found["cdi-allow-uploadproxy-communications"]["spec"]["egress"]
    assert rule["to"][0]["podSelector"]["matchLabels"] == {"cdi.kubevirt.io": "cdi-upload-server"}
    assert rule["ports"] == [{"port": 8443, "protocol": "TCP"}]
    assert found["cdi-allow-egress-from-poller"]["spec"]["egress"] == [{}]
    assert {document["metadata"]["namespace"] for document in found.values()} == {"cdi"}


def test_every_component_has_an_account_that_may_ask_who_reads_its_metrics() -> None:
    objects = [*component_rights.component_rights(PARAMETERS), *operator_rights.operator_rights(SETTINGS)]
    accounts = {each["metadata"]["name"] for each in objects if each["kind"] == "ServiceAccount"}
    rules = {each["metadata"]["name"]: each["rules"] for each in objects if each["kind"] == "ClusterRole"}
    for name in ("cdi-operator", *CDI_COMPONENTS):
        account = COMPONENTS[name].service_account
        assert account in accounts
        bound = [
            rules[each["roleRef"]["name"]]
            for each in objects
            if each["kind"] == "ClusterRoleBinding" and account in [item["name"] for item in each["subjects"]]
        ]
        every = [rule for found in bound for rule in found]
        assert _may(every, "authentication.k8s.io", "tokenreviews", "create"), name
        assert _may(every, "authorization.k8s.io", "subjectaccessreviews", "create"), name
