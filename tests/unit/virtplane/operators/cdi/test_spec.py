"""Every field of the CDI object that the operator acts on."""

from __future__ import annotations

import base64
from datetime import timedelta

import pytest
from cryptography import x509
from tests.support.cdi_operator import COMPONENTS, NAMESPACE, Operator, running
from tests.support.waiting import until

from kubecore import resources
from kubecore.json import JsonObject
from kubecore.testing import MemoryApi

_PREFERRED = {
    "weight": 7,
    "podAffinityTerm": {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "zone"},
}


async def _pods(operator: Operator) -> dict[str, JsonObject]:
    """The pods' specs by the names of their Deployments."""
    found = {}
    for name in COMPONENTS:
        live = await operator.appears(resources.DEPLOYMENTS, name)
        found[name] = live["spec"]["template"]["spec"]
    return found


def _container(pod: JsonObject) -> JsonObject:
    container: JsonObject
    (container,) = pod["containers"]
    return container


async def test_components_run_where_and_as_often_as_infra_says() -> None:
    infra = {
        "nodeSelector": {"infra": "yes"},
        "tolerations": [{"key": "infra", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [_PREFERRED]}},
        "apiServerReplicas": 2,
        "deploymentReplicas": 3,
        "uploadProxyReplicas": 4,
    }
    async with running() as operator:
        operator.put({"infra": infra})
        for pod in (await _pods(operator)).values():
            assert pod["nodeSelector"] == {"kubernetes.io/os": "linux", "infra": "yes"}
            assert {"key": "infra", "operator": "Exists"} in pod["tolerations"]
            terms = pod["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
            assert [term["weight"] for term in terms] == [7, 1]
        replicas = [operator.get(resources.DEPLOYMENTS, name)["spec"]["replicas"] for name in COMPONENTS]
        assert replicas == [2, 3, 4]


async def test_placement_of_workers_is_not_that_of_components() -> None:
    async with running() as operator:
        operator.put({"workload": {"nodeSelector": {"workers": "only"}}})
        for pod in (await _pods(operator)).values():
            assert pod["nodeSelector"] == {"kubernetes.io/os": "linux"}


async def test_pull_policy_pull_secrets_and_verbosity_reach_the_components() -> None:
    config = {"imagePullSecrets": [{"name": "pull"}], "logVerbosity": 5}
    async with running() as operator:
        operator.put({"imagePullPolicy": "Always", "config": config})
        pods = await _pods(operator)
        for name, pod in pods.items():
            container = _container(pod)
            assert container["imagePullPolicy"] == "Always"
            assert container["command"] == ["virtplane", "run", name]
            assert container["args"][-2:] == ["--verbosity", "5"]
            assert pod["imagePullSecrets"] == [{"name": "pull"}]
        environment = {each["name"]: each.get("value") for each in _container(pods["cdi-deployment"])["env"]}
        assert environment["PULL_POLICY"] == "Always"
        assert environment["IMPORTER_IMAGE"] == "registry.test/virtplane:1"


@pytest.mark.parametrize(
    ("existing", "spec", "wanted"),
    [
        ("kubevirt-cluster-critical", {}, "kubevirt-cluster-critical"),
        ("none", {}, None),
        ("mine", {"priorityClass": "mine"}, "mine"),
        ("kubevirt-cluster-critical", {"priorityClass": "missing"}, None),
    ],
)
async def test_components_have_a_priority_class_that_exists(
    existing: str, spec: JsonObject, wanted: str | None
) -> None:
    def with_class(server: MemoryApi) -> None:
        server.put(resources.PRIORITY_CLASSES, {"metadata": {"name": existing}, "value": 1})

    async with running(before=with_class) as operator:
        operator.put(spec)
        assert {pod.get("priorityClassName") for pod in (await _pods(operator)).values()} == {wanted}


async def test_pods_need_no_privilege() -> None:
    async with running() as operator:
        operator.put()
        for pod in (await _pods(operator)).values():
            security = _container(pod)["securityContext"]
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert (security["allowPrivilegeEscalation"], security["runAsNonRoot"]) == (False, True)
            assert security["seccompProfile"] == {"type": "RuntimeDefault"}


async def test_services_lead_to_the_ports_of_the_components() -> None:
    async with running() as operator:
        operator.put()
        pods = await _pods(operator)
        for service, component in (("cdi-api", "cdi-apiserver"), ("cdi-uploadproxy", "cdi-uploadproxy")):
            spec = operator.get(resources.SERVICES, service)["spec"]
            (port,) = spec["ports"]
            assert port["port"] == 443
            ports = {each["containerPort"] for each in _container(pods[component])["ports"]}
            assert port["targetPort"] in ports
            labels = operator.get(resources.DEPLOYMENTS, component)["spec"]["template"]["metadata"]["labels"]
            assert spec["selector"].items() <= labels.items()
        metrics = operator.get(resources.SERVICES, "cdi-prometheus-metrics")["spec"]
        assert metrics["ports"][0]["targetPort"] == "metrics"
        labels = operator.get(resources.DEPLOYMENTS, "cdi-deployment")["spec"]["template"]["metadata"][
            "labels"
        ]
        assert metrics["selector"].items() <= labels.items()


async def test_users_patches_change_the_objects_that_they_name() -> None:
    patch = '{"spec": {"template": {"spec": {"hostAliases": [{"ip": "1.2.3.4", "hostnames": ["x"]}]}}}}'
    patches = [
        {"resourceName": "cdi-apiserver", "resourceType": "Deployment", "patch": patch, "type": "strategic"}
    ]
    async with running() as operator:
        operator.put({"customizeComponents": {"patches": patches}})
        pods = await _pods(operator)
        assert [name for name, pod in pods.items() if "hostAliases" in pod] == ["cdi-apiserver"]
        annotations = operator.get(resources.DEPLOYMENTS, "cdi-apiserver")["metadata"]["annotations"]
        assert "cdi.kubevirt.io/customizer-identifier" in annotations
        operator.put()
        await until(
            lambda: (
                "hostAliases"
                not in operator.get(resources.DEPLOYMENTS, "cdi-apiserver")["spec"]["template"]["spec"]
            )
        )


def _certificate(operator: Operator, name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(base64.b64decode(operator.secrets()[name]))


def _life(operator: Operator, name: str) -> timedelta:
    return _certificate(operator, name).not_valid_after_utc - operator.now


_AUTHORITIES = {
    "cdi-apiserver-signer": "cdi-apiserver-server-cert",
    "cdi-uploadproxy-signer": "cdi-uploadproxy-server-cert",
    "cdi-uploadserver-signer": None,
    "cdi-uploadserver-client-signer": "cdi-uploadserver-client-cert",
}


def _bundle(operator: Operator, signer: str) -> list[x509.Certificate]:
    text = operator.get(resources.CONFIG_MAPS, f"{signer}-bundle")["data"]["ca-bundle.crt"]
    return x509.load_pem_x509_certificates(text.encode())


@pytest.mark.feature("INS-48")
async def test_there_are_four_authorities_with_their_bundles() -> None:
    async with running() as operator:
        operator.put()
        await operator.deploy()
        for signer, leaf in _AUTHORITIES.items():
            assert _life(operator, signer) == timedelta(hours=48)
            assert _bundle(operator, signer) == [_certificate(operator, signer)]
            if leaf is not None:
                assert _life(operator, leaf) == timedelta(hours=24)
                _certificate(operator, leaf).verify_directly_issued_by(_certificate(operator, signer))
        client = _certificate(operator, "cdi-uploadserver-client-cert").subject.rfc4514_string()
        assert client == "CN=client.upload-server.cdi.kubevirt.io"
        names = _certificate(operator, "cdi-apiserver-server-cert").extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        )
        assert f"cdi-api.{NAMESPACE}.svc" in names.value.get_values_for_type(x509.DNSName)


@pytest.mark.feature("INS-48")
async def test_certificates_and_then_authorities_are_renewed_in_the_middle_of_their_lives() -> None:
    async with running() as operator:
        operator.put()
        await operator.deploy()
        first = operator.secrets()
        await operator.pass_time(timedelta(hours=11))
        assert operator.secrets() == first
        await operator.pass_time(timedelta(hours=2))
        leaves = {leaf for leaf in _AUTHORITIES.values() if leaf}
        await until(lambda: {n for n, text in operator.secrets().items() if text != first[n]} == leaves)
        former = _certificate(operator, "cdi-uploadserver-signer")
        await operator.pass_time(timedelta(hours=12))
        await until(lambda: not [name for name, text in operator.secrets().items() if text == first[name]])
        await until(
            lambda: (
                _bundle(operator, "cdi-uploadserver-signer")
                == [_certificate(operator, "cdi-uploadserver-signer"), former]
            )
        )
        bundle = operator.get(resources.CONFIG_MAPS, "cdi-apiserver-signer-bundle")["data"]["ca-bundle.crt"]
        encoded = base64.b64encode(bundle.encode()).decode()

        def registered() -> bool:
            document = operator.get(resources.VALIDATING_WEBHOOK_CONFIGURATIONS, "cdi-api-validate")
            (webhook,) = document["webhooks"]
            return bool(webhook["clientConfig"]["caBundle"] == encoded)

        await until(registered)
        await operator.pass_time(timedelta(hours=24))
        await until(lambda: former not in _bundle(operator, "cdi-uploadserver-signer"))


@pytest.mark.feature("INS-48")
async def test_lifetimes_can_be_set_and_hold_at_once() -> None:
    async with running() as operator:
        operator.put()
        await operator.deploy()
        config = {
            "ca": {"duration": "4h", "renewBefore": "1h"},
            "server": {"duration": "2h"},
            "client": {"duration": "1h", "renewBefore": "10m"},
        }
        operator.put({"certConfig": config})
        await until(lambda: _life(operator, "cdi-uploadserver-client-cert") == timedelta(hours=1))
        assert _life(operator, "cdi-uploadproxy-signer") == timedelta(hours=4)
        await until(lambda: _life(operator, "cdi-uploadproxy-server-cert") == timedelta(hours=2))
        before = operator.secrets()
        await operator.pass_time(timedelta(minutes=51))
        await until(lambda: operator.secrets() != before)
        changed = {name for name, text in operator.secrets().items() if text != before[name]}
        assert changed == {"cdi-uploadserver-client-cert"}


async def test_a_lifetime_that_is_none_is_reported() -> None:
    async with running() as operator:
        operator.put({"certConfig": {"ca": {"duration": "long"}}})
        await until(lambda: operator.conditions().get("Degraded", ("",))[0] == "True")
        assert "spec.certConfig" in operator.conditions()["Degraded"][2]
        operator.put()
        await operator.deploy()
