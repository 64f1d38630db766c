"""What the plugins of every cluster do to requests, and which they refuse."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.admission import Cluster, pod

from kindling.apiserver.admission.ingress_class import INGRESSES, DefaultIngressClass
from kindling.apiserver.admission.limit_ranger import LimitRanger, pod_amounts
from kindling.apiserver.admission.namespaces import NamespaceLifecycle
from kindling.apiserver.admission.priority import Priority
from kindling.apiserver.admission.quota import ResourceQuota
from kindling.apiserver.admission.runtime_class import RUNTIME_CLASSES, RuntimeClass
from kindling.apiserver.admission.service_accounts import ServiceAccounts
from kindling.apiserver.admission.storage import ClaimResize, DefaultStorageClass, StorageProtection
from kindling.apiserver.admission.tolerations import DefaultTolerations
from kubecore.errors import StatusError
from kubecore.json import JsonObject, deep_copy
from kubecore.resources import (
    CONFIG_MAPS,
    LIMIT_RANGES,
    NAMESPACES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    SECRETS,
    SERVICE_ACCOUNTS,
    STORAGE_CLASSES,
)


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.objects.put(NAMESPACES, {"metadata": {"name": "ns"}, "status": {"phase": "Active"}})
    made.objects.put(SERVICE_ACCOUNTS, {"metadata": {"name": "default", "namespace": "ns"}})
    return made


async def test_nothing_is_created_in_a_namespace_that_is_missing(cluster: Cluster) -> None:
    request = cluster.request(CONFIG_MAPS, {"metadata": {"name": "a"}}, namespace="none")
    with pytest.raises(StatusError, match=r'^namespaces "none" not found$'):
        await NamespaceLifecycle(cluster.objects).mutate(request)


async def test_nothing_is_created_in_a_namespace_that_is_going(cluster: Cluster) -> None:
    cluster.objects.put(NAMESPACES, {"metadata": {"name": "ns", "deletionTimestamp": "x"}})
    request = cluster.request(CONFIG_MAPS, {"metadata": {"name": "a"}})
    with pytest.raises(StatusError) as caught:
        await NamespaceLifecycle(cluster.objects).mutate(request)
    assert caught.value.message == (
        'configmaps "a" is forbidden: unable to create new content in namespace ns '
        "because it is being terminated"
    )
    assert (caught.value.details or {})["causes"][0]["reason"] == "NamespaceTerminating"


async def test_the_default_namespace_stays(cluster: Cluster) -> None:
    request = cluster.request(NAMESPACES, None, operation="DELETE", old={"metadata": {"name": "default"}})
    with pytest.raises(StatusError, match="this namespace may not be deleted"):
        await NamespaceLifecycle(cluster.objects).mutate(request)


async def test_a_pod_gets_the_default_account_and_its_token(cluster: Cluster) -> None:
    request = cluster.request(PODS, pod())
    await ServiceAccounts(cluster.objects).mutate(request)
    spec = (request.object or {})["spec"]
    assert (spec["serviceAccountName"], spec["serviceAccount"]) == ("default", "default")
    (volume,) = spec["volumes"]
    assert volume["name"].startswith("kube-api-access-")
    assert [sorted(source) for source in volume["projected"]["sources"]] == [
        ["serviceAccountToken"],
        ["configMap"],
        ["downwardAPI"],
    ]
    (mount,) = spec["containers"][0]["volumeMounts"]
    assert mount == {
        "name": volume["name"],
        "readOnly": True,
        "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
    }


async def test_a_pod_may_do_without_its_token(cluster: Cluster) -> None:
    request = cluster.request(PODS, pod(automountServiceAccountToken=False))
    await ServiceAccounts(cluster.objects).mutate(request)
    assert "volumes" not in (request.object or {})["spec"]


async def test_an_account_that_is_missing_keeps_the_pod_out(cluster: Cluster) -> None:
    request = cluster.request(PODS, pod(serviceAccountName="none"))
    with pytest.raises(StatusError) as caught:
        await ServiceAccounts(cluster.objects).mutate(request)
    assert caught.value.message == (
        'pods "p" is forbidden: error looking up service account ns/none: serviceaccount "none" not found'
    )


@pytest.mark.looptime
async def test_the_account_of_a_new_namespace_is_waited_for() -> None:
    cluster = Cluster()
    request = cluster.request(PODS, pod())
    account = {"metadata": {"name": "default", "namespace": "ns"}}
    asyncio.get_running_loop().call_later(1, cluster.objects.put, SERVICE_ACCOUNTS, account)
    await ServiceAccounts(cluster.objects).mutate(request)
    assert (request.object or {})["spec"]["serviceAccountName"] == "default"


@pytest.mark.looptime
async def test_the_account_of_a_namespace_is_not_waited_for_without_end() -> None:
    cluster = Cluster()
    with pytest.raises(StatusError, match='serviceaccount "default" not found'):
        await ServiceAccounts(cluster.objects).mutate(cluster.request(PODS, pod()))
    assert 1 < asyncio.get_running_loop().time() < 3


async def test_pull_secrets_of_the_account_are_taken_over(cluster: Cluster) -> None:
    account = {"metadata": {"name": "default", "namespace": "ns"}, "imagePullSecrets": [{"name": "pull"}]}
    cluster.objects.put(SERVICE_ACCOUNTS, account)
    request = cluster.request(PODS, pod())
    await ServiceAccounts(cluster.objects).mutate(request)
    assert (request.object or {})["spec"]["imagePullSecrets"] == [{"name": "pull"}]


async def test_a_pod_tolerates_silent_nodes_for_five_minutes(cluster: Cluster) -> None:
    mine = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}
    request = cluster.request(PODS, pod(tolerations=[mine]))
    await DefaultTolerations().mutate(request)
    assert (request.object or {})["spec"]["tolerations"] == [
        mine,
        {
            "key": "node.kubernetes.io/unreachable",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 300,
        },
    ]


async def test_a_pod_takes_the_number_of_its_priority_class(cluster: Cluster) -> None:
    cluster.objects.put(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 1000})
    request = cluster.request(PODS, pod(priorityClassName="high"))
    await Priority(cluster.objects).mutate(request)
    spec = (request.object or {})["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (1000, "PreemptLowerPriority")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"priorityClassName": "none"}, "no PriorityClass with name none was found"),
        (
            {"priority": 5},
            "the integer value of priority (5) must not be provided in pod spec; "
            "priority admission controller computed 0 from the given PriorityClass name",
        ),
    ],
)
async def test_a_priority_nobody_gave_is_refused(cluster: Cluster, spec: JsonObject, message: str) -> None:
    request = cluster.request(PODS, pod(**spec))
    with pytest.raises(StatusError) as caught:
        await Priority(cluster.objects).mutate(request)
    assert caught.value.message == f'pods "p" is forbidden: {message}'


@pytest.mark.feature("STO-04", "VMC-81")
async def test_a_claim_gets_the_newest_default_class(cluster: Cluster) -> None:
    for name, created in (("old", "2026-01-01T00:00:00Z"), ("new", "2026-01-02T00:00:00Z")):
        marked = {"storageclass.kubernetes.io/is-default-class": "true"}
        metadata = {"name": name, "creationTimestamp": created, "annotations": marked}
        cluster.objects.put(STORAGE_CLASSES, {"metadata": metadata})
    request = cluster.request(PERSISTENT_VOLUME_CLAIMS, {"metadata": {"name": "c"}, "spec": {}})
    await DefaultStorageClass(cluster.objects).mutate(request)
    await StorageProtection().mutate(request)
    claim = request.object or {}
    assert claim["spec"]["storageClassName"] == "new"
    assert claim["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]


async def test_a_claim_grows_only_where_its_class_allows_it(cluster: Cluster) -> None:
    def claim(size: str) -> JsonObject:
        resources = {"requests": {"storage": size}}
        spec = {"storageClassName": "fixed", "resources": resources}
        return {"metadata": {"name": "c"}, "spec": spec, "status": {"phase": "Bound"}}

    cluster.objects.put(STORAGE_CLASSES, {"metadata": {"name": "fixed"}})
    request = cluster.request(PERSISTENT_VOLUME_CLAIMS, claim("2Gi"), operation="UPDATE", old=claim("1Gi"))
    with pytest.raises(StatusError, match="only dynamically provisioned pvc can be resized"):
        await ClaimResize(cluster.objects).validate(request)
    cluster.objects.put(STORAGE_CLASSES, {"metadata": {"name": "fixed"}, "allowVolumeExpansion": True})
    await ClaimResize(cluster.objects).validate(request)


async def test_an_ingress_without_default_class_stays_without(cluster: Cluster) -> None:
    request = cluster.request(INGRESSES, {"metadata": {"name": "i"}, "spec": {}})
    await DefaultIngressClass(cluster.objects).mutate(request)
    assert "ingressClassName" not in (request.object or {})["spec"]


async def test_a_limit_range_fills_in_what_containers_leave_out(cluster: Cluster) -> None:
    limit = {"type": "Container", "default": {"cpu": "200m"}, "defaultRequest": {"cpu": "100m"}}
    limit_range = {"metadata": {"name": "l", "namespace": "ns"}, "spec": {"limits": [limit]}}
    cluster.objects.put(LIMIT_RANGES, limit_range)
    request = cluster.request(PODS, pod())
    await LimitRanger(cluster.objects).mutate(request)
    made = request.object or {}
    assert made["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "100m"},
        "limits": {"cpu": "200m"},
    }
    assert made["metadata"]["annotations"]["kubernetes.io/limit-ranger"] == (
        "LimitRanger plugin set: cpu request for container main; cpu limit for container main"
    )


async def test_containers_outside_the_limits_are_refused(cluster: Cluster) -> None:
    limit = {"type": "Container", "max": {"cpu": "1"}, "min": {"memory": "1Mi"}}
    limit_range = {"metadata": {"name": "l", "namespace": "ns"}, "spec": {"limits": [limit]}}
    cluster.objects.put(LIMIT_RANGES, limit_range)
    resources = {"requests": {"cpu": "2", "memory": "1k"}, "limits": {"cpu": "2"}}
    request = cluster.request(PODS, pod(containers=[{"name": "m", "image": "x", "resources": resources}]))
    with pytest.raises(StatusError) as caught:
        await LimitRanger(cluster.objects).validate(request)
    assert caught.value.message == (
        'pods "p" is forbidden: [minimum memory usage per Container is 1Mi, but request is 1k, '
        "maximum cpu usage per Container is 1, but limit is 2]"
    )


def test_init_containers_count_only_where_they_need_more_than_the_rest() -> None:
    def container(cpu: str, **more: str) -> JsonObject:
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    spec = {
        "containers": [container("1"), container("1")],
        "initContainers": [container("500m", restartPolicy="Always"), container("3")],
    }
    assert pod_amounts(spec, "requests") == {"cpu": "3500m"}


def quota(hard: JsonObject, used: JsonObject) -> JsonObject:
    status = {"hard": hard, "used": used}
    return {"metadata": {"name": "q", "namespace": "ns"}, "spec": {"hard": hard}, "status": status}


async def test_a_quota_counts_what_is_created(cluster: Cluster) -> None:
    cluster.objects.put(RESOURCE_QUOTAS, quota({"secrets": "2"}, {"secrets": "1"}))
    plugin = ResourceQuota(cluster.objects)
    await plugin.validate(cluster.request(SECRETS, {"metadata": {"name": "a"}}))
    stored = cluster.objects.get(RESOURCE_QUOTAS, "ns", "q") or {}
    assert stored["status"]["used"] == {"secrets": "2"}
    with pytest.raises(StatusError) as caught:
        await plugin.validate(cluster.request(SECRETS, {"metadata": {"name": "b"}}))
    assert caught.value.message == (
        'secrets "b" is forbidden: exceeded quota: q, '
        "requested: secrets=1, used: secrets=2, limited: secrets=2"
    )


def resized(cpu: str) -> JsonObject:
    resources = {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}
    return pod(containers=[{"name": "m", "image": "x", "resources": resources}])


async def test_a_quota_counts_what_a_resize_adds(cluster: Cluster) -> None:
    cluster.objects.put(RESOURCE_QUOTAS, quota({"requests.cpu": "3"}, {"requests.cpu": "1"}))
    plugin = ResourceQuota(cluster.objects)

    async def resize(cpu: str, before: str) -> None:
        request = cluster.request(PODS, resized(cpu), operation="UPDATE", old=resized(before))
        request.ctx.subresource = "resize"
        await plugin.validate(request)

    await resize("2", "1")
    stored = cluster.objects.get(RESOURCE_QUOTAS, "ns", "q") or {}
    assert stored["status"]["used"] == {"requests.cpu": "2"}
    with pytest.raises(
        StatusError, match=r"exceeded quota: q, requested: requests.cpu=2, used: requests.cpu=2"
    ):
        await resize("4", "2")
    await resize("1", "2")


async def test_a_resized_pod_stays_within_the_limits(cluster: Cluster) -> None:
    limit = {"type": "Container", "max": {"cpu": "1"}}
    limit_range = {"metadata": {"name": "l", "namespace": "ns"}, "spec": {"limits": [limit]}}
    cluster.objects.put(LIMIT_RANGES, limit_range)
    request = cluster.request(PODS, resized("2"), operation="UPDATE", old=resized("1"))
    request.ctx.subresource = "resize"
    with pytest.raises(StatusError, match="maximum cpu usage per Container is 1, but limit is 2"):
        await LimitRanger(cluster.objects).validate(request)


async def test_a_quota_counts_what_the_pod_itself_asks_for(cluster: Cluster) -> None:
    """It is what the node gives the pod, whatever its containers name."""
    hard = {"requests.cpu": "3", "limits.memory": "1Gi"}
    cluster.objects.put(RESOURCE_QUOTAS, quota(hard, {"requests.cpu": "0", "limits.memory": "0"}))
    large = pod(containers=[{"name": "m", "image": "x"}])
    large["spec"]["resources"] = {"requests": {"cpu": "2"}, "limits": {"memory": "2Gi"}}
    with pytest.raises(StatusError, match=r"exceeded quota: q, requested: limits.memory=2Gi"):
        await ResourceQuota(cluster.objects).validate(cluster.request(PODS, large))
    large["spec"]["resources"]["limits"] = {"memory": "1Gi"}
    await ResourceQuota(cluster.objects).validate(cluster.request(PODS, large))
    stored = cluster.objects.get(RESOURCE_QUOTAS, "ns", "q") or {}
    assert stored["status"]["used"] == {"requests.cpu": "2", "limits.memory": "1Gi"}


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
async def test_a_claim_counts_for_the_class_that_its_volume_is_of(cluster: Cluster, operation: str) -> None:
    """The annotation has precedence over the field for whoever makes the volume."""
    hard = {"premium.storageclass.storage.k8s.io/persistentvolumeclaims": "0"}
    cluster.objects.put(RESOURCE_QUOTAS, quota(hard, hard))

    def claim(annotations: dict[str, str], **spec: str) -> JsonObject:
        return {"metadata": {"name": "c", "annotations": annotations}, "spec": spec}

    beta = "volume.beta.kubernetes.io/storage-class"
    old = claim({}) if operation == "UPDATE" else None
    for hidden in (
        claim({beta: "premium"}),
        claim({beta: "premium"}, storageClassName="cheap"),
        claim({}, storageClassName="premium"),
    ):
        request = cluster.request(PERSISTENT_VOLUME_CLAIMS, hidden, operation=operation, old=old)
        with pytest.raises(StatusError, match="exceeded quota: q"):
            await ResourceQuota(cluster.objects).validate(request)


async def test_a_dry_run_counts_nothing(cluster: Cluster) -> None:
    cluster.objects.put(RESOURCE_QUOTAS, quota({"secrets": "2"}, {"secrets": "1"}))
    request = cluster.request(SECRETS, {"metadata": {"name": "a"}}, dry_run=True)
    await ResourceQuota(cluster.objects).validate(request)
    stored = cluster.objects.get(RESOURCE_QUOTAS, "ns", "q") or {}
    assert stored["status"]["used"] == {"secrets": "1"}


async def test_where_cpu_is_limited_containers_must_name_it(cluster: Cluster) -> None:
    cluster.objects.put(RESOURCE_QUOTAS, quota({"requests.cpu": "1"}, {"requests.cpu": "0"}))
    request = cluster.request(
        PODS, pod(containers=[{"name": "m", "image": "x", "resources": {"requests": {"memory": "1Mi"}}}])
    )
    await ResourceQuota(cluster.objects).validate(request)
    both = pod(
        containers=[
            {"name": "m", "image": "x", "resources": {"requests": {"cpu": "1m"}}},
            {"name": "n", "image": "x"},
        ]
    )
    with pytest.raises(StatusError, match=r"failed quota: q: must specify requests\.cpu for: n"):
        await ResourceQuota(cluster.objects).validate(cluster.request(PODS, both))


async def test_a_quota_with_scopes_counts_only_pods_of_them(cluster: Cluster) -> None:
    best_effort = quota({"pods": "0"}, {"pods": "0"})
    best_effort["spec"]["scopes"] = ["BestEffort"]
    cluster.objects.put(RESOURCE_QUOTAS, best_effort)
    with pytest.raises(StatusError, match="exceeded quota: q, requested: pods=1"):
        await ResourceQuota(cluster.objects).validate(cluster.request(PODS, pod()))
    burstable = pod(containers=[{"name": "m", "image": "x", "resources": {"requests": {"cpu": "1m"}}}])
    await ResourceQuota(cluster.objects).validate(cluster.request(PODS, deep_copy(burstable)))


async def test_a_runtime_class_adds_its_overhead_and_its_places(cluster: Cluster) -> None:
    cluster.objects.put(
        RUNTIME_CLASSES,
        {
            "metadata": {"name": "kata"},
            "handler": "kata",
            "overhead": {"podFixed": {"cpu": "250m", "memory": "120Mi"}},
            "scheduling": {"nodeSelector": {"kata": "yes"}, "tolerations": [{"key": "kata"}]},
        },
    )
    made = pod()
    made["spec"] |= {"runtimeClassName": "kata", "nodeSelector": {"zone": "a"}}
    request = cluster.request(PODS, made)
    plugin = RuntimeClass(cluster.objects)
    await plugin.mutate(request)
    await plugin.validate(request)
    assert made["spec"]["overhead"] == {"cpu": "250m", "memory": "120Mi"}
    assert made["spec"]["nodeSelector"] == {"zone": "a", "kata": "yes"}
    assert {"key": "kata"} in made["spec"]["tolerations"]


async def test_a_runtime_class_must_exist_and_agree_with_the_pod(cluster: Cluster) -> None:
    made = pod()
    made["spec"]["runtimeClassName"] = "none"
    plugin = RuntimeClass(cluster.objects)
    with pytest.raises(StatusError, match=r'pod rejected: RuntimeClass "none" not found$'):
        await plugin.mutate(cluster.request(PODS, made))
    scheduling = {"nodeSelector": {"zone": "b"}}
    cluster.objects.put(
        RUNTIME_CLASSES, {"metadata": {"name": "none"}, "handler": "x", "scheduling": scheduling}
    )
    made["spec"]["nodeSelector"] = {"zone": "a"}
    with pytest.raises(StatusError, match=r"conflict: runtimeClass\.scheduling\.nodeSelector"):
        await plugin.mutate(cluster.request(PODS, made))
    made["spec"] |= {"nodeSelector": {}, "overhead": {"cpu": "1"}}
    with pytest.raises(StatusError, match="Overhead doesn't match"):
        await plugin.mutate(cluster.request(PODS, made))
