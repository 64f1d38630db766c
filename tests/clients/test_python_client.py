"""The official Python client: typed and dynamic calls, watches, informers, leader election, files."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client, config, utils, watch
from kubernetes.client.exceptions import ApiException, ConflictException
from kubernetes.informer import SharedInformer
from kubernetes.leaderelection import electionconfig, leaderelection
from kubernetes.leaderelection.resourcelock.configmaplock import ConfigMapLock
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock
from tests.clients.live import LiveCluster, wait_for


@pytest.fixture
def api(cluster: LiveCluster) -> Iterator[Any]:
    """A configured client, which is also the default one, as locks take no other."""
    config.load_kube_config(str(cluster.kubeconfig))
    with client.ApiClient() as made:
        yield made


@pytest.fixture
def core(api: Any) -> Any:
    """The core group."""
    return client.CoreV1Api(api)


def settings(name: str = "settings", **data: str) -> Any:
    """A ConfigMap."""
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name), data=data)


def deployment(replicas: int = 1) -> Any:
    """A Deployment called web."""
    labels = {"app": "web"}
    port = client.V1ContainerPort(container_port=80)
    container = client.V1Container(name="web", image="registry.example/web:1", ports=[port])
    template = client.V1PodTemplateSpec(
        metadata=client.V1ObjectMeta(labels=labels), spec=client.V1PodSpec(containers=[container])
    )
    return client.V1Deployment(
        metadata=client.V1ObjectMeta(name="web"),
        spec=client.V1DeploymentSpec(
            replicas=replicas, selector=client.V1LabelSelector(match_labels=labels), template=template
        ),
    )


# Typed calls.


def test_a_config_map_from_creation_to_deletion(core: Any, namespace: str) -> None:
    made = core.create_namespaced_config_map(namespace, settings(a="1"))
    assert made.metadata.creation_timestamp.tzinfo is not None
    made.data["b"] = "2"
    replaced = core.replace_namespaced_config_map("settings", namespace, made)
    assert replaced.data == {"a": "1", "b": "2"}
    with pytest.raises(ApiException) as refused:
        core.replace_namespaced_config_map("settings", namespace, made)
    assert (refused.value.status, refused.value.reason) == (409, "Conflict")
    patched = core.patch_namespaced_config_map("settings", namespace, {"data": {"a": None}})
    assert patched.data == {"b": "2"}
    assert [item.metadata.name for item in core.list_namespaced_config_map(namespace, limit=1).items]
    status = core.delete_namespaced_config_map("settings", namespace)
    assert (status["status"], status["details"]["kind"]) == ("Success", "configmaps")
    with pytest.raises(ApiException) as missing:
        core.read_namespaced_config_map("settings", namespace)
    assert missing.value.status == 404


def test_each_content_type_of_patches(core: Any, namespace: str) -> None:
    core.create_namespaced_config_map(namespace, settings(a="1"))
    operations = [{"op": "test", "path": "/data/a", "value": "1"}, {"op": "remove", "path": "/data/a"}]
    assert core.patch_namespaced_config_map("settings", namespace, operations).data is None
    applied = core.patch_namespaced_config_map(
        "settings",
        namespace,
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"c": "3"}},
        field_manager="python",
        _content_type="application/apply-patch+yaml",
    )
    entry = next(entry for entry in applied.metadata.managed_fields if entry.manager == "python")
    assert (entry.operation, entry.fields_v1) == ("Apply", {"f:data": {"f:c": {}}})


def test_pages_continue_to_the_end(core: Any, namespace: str) -> None:
    for number in range(5):
        core.create_namespaced_config_map(namespace, settings(f"n{number}"))
    names: list[str] = []
    token, remaining = None, []
    while token != "":
        page = core.list_namespaced_config_map(
            namespace, limit=2, _continue=token, field_selector="metadata.name!=kube-root-ca.crt"
        )
        names += [item.metadata.name for item in page.items]
        token = page.metadata._continue or ""
        remaining.append(page.metadata.remaining_item_count)
    assert names == [f"n{number}" for number in range(5)]
    # With a selector, nobody counts what remains.
    assert remaining == [None, None, None]


def test_workloads_scale_and_status(api: Any, core: Any, namespace: str) -> None:
    apps = client.AppsV1Api(api)
    apps.create_namespaced_deployment(namespace, deployment())

    def scaled() -> bool:
        """Read, change, write: again when a controller wrote in between, as every client must."""
        scale = apps.read_namespaced_deployment_scale("web", namespace)
        scale.spec.replicas = 2
        try:
            answer = apps.replace_namespaced_deployment_scale("web", namespace, scale)
        except ConflictException:
            return False
        return bool(answer.spec.replicas == 2)

    wait_for("it is scaled", scaled)
    wait_for(
        "two replicas are ready",
        lambda: apps.read_namespaced_deployment_status("web", namespace).status.ready_replicas == 2,
    )
    pods = core.list_namespaced_pod(namespace, label_selector="app=web").items
    assert {pod.status.phase for pod in pods} == {"Running"}
    eviction = client.V1Eviction(metadata=client.V1ObjectMeta(name=pods[0].metadata.name))
    core.create_namespaced_pod_eviction(pods[0].metadata.name, namespace, eviction)
    apps.delete_collection_namespaced_deployment(namespace, propagation_policy="Foreground")
    wait_for("the pods are gone", lambda: not core.list_namespaced_pod(namespace).items)


def test_dry_runs_and_field_validation(core: Any, namespace: str) -> None:
    made = core.create_namespaced_config_map(namespace, settings(), dry_run="All")
    assert made.metadata.uid
    assert core.list_namespaced_config_map(namespace, field_selector="metadata.name=settings").items == []
    # The client checks bodies itself, but hands on what patches hold.
    core.create_namespaced_config_map(namespace, settings())
    with pytest.raises(ApiException) as refused:
        core.patch_namespaced_config_map("settings", namespace, {"imagined": 1}, field_validation="Strict")
    assert refused.value.status == 422
    assert 'unknown field \\"imagined\\"' in refused.value.body


def test_tokens_and_reviews(api: Any, core: Any, namespace: str) -> None:
    account = client.V1ServiceAccount(metadata=client.V1ObjectMeta(name="robot"))
    core.create_namespaced_service_account(namespace, account)
    spec = client.V1TokenRequestSpec(audiences=[], expiration_seconds=900)
    request = client.AuthenticationV1TokenRequest(spec=spec)
    token = core.create_namespaced_service_account_token("robot", namespace, request).status.token
    review = client.V1TokenReview(spec=client.V1TokenReviewSpec(token=token))
    authentication = client.AuthenticationV1Api(api)
    answer = authentication.create_token_review(review)
    assert answer.spec.token == token
    reviewed = answer.status
    assert reviewed.authenticated
    assert reviewed.user.username == f"system:serviceaccount:{namespace}:robot"
    review.spec.token = "made up"
    refused = authentication.create_token_review(review).status
    assert (refused.authenticated, refused.error) == (None, "invalid bearer token")
    attributes = client.V1ResourceAttributes(namespace=namespace, verb="get", resource="pods")
    access = client.V1SubjectAccessReview(
        spec=client.V1SubjectAccessReviewSpec(user=reviewed.user.username, resource_attributes=attributes)
    )
    authorization = client.AuthorizationV1Api(api)
    assert authorization.create_subject_access_review(access).status.allowed is False
    own = client.V1SelfSubjectAccessReview(
        spec=client.V1SelfSubjectAccessReviewSpec(resource_attributes=attributes)
    )
    assert authorization.create_self_subject_access_review(own).status.allowed is True


def test_every_published_list_call_of_the_client_is_answered_or_unknown(api: Any) -> None:
    """All kinds of the stable groups, decoded into the client's own classes."""
    listed, missing = 0, set()
    for name in dir(client):
        if not (name.endswith("V1Api") or name in ("AutoscalingV2Api",)) or name == "InternalApiserverV1Api":
            continue
        group = getattr(client, name)(api)
        for method in dir(group):
            if (
                method.startswith("list_")
                and not method.endswith("_with_http_info")
                and "_namespaced_" not in method
            ):
                try:
                    getattr(group, method)(limit=3)
                    listed += 1
                except ApiException as error:
                    # Kinds that this server does not have at all.
                    assert error.status == 404, (name, method, error)
                    missing.add(method.removeprefix("list_"))
    assert missing == {
        "cluster_trust_bundle",
        "device_taint_rule",
        "pod_certificate_request_for_all_namespaces",
        "storage_version_migration",
    }
    assert listed > 50


# Watches.


def test_a_watch_is_typed_and_resumes_after_its_end(core: Any, namespace: str) -> None:
    listed = core.list_namespaced_config_map(namespace)
    core.create_namespaced_config_map(namespace, settings(a="1"))
    core.patch_namespaced_config_map("settings", namespace, {"data": {"a": "2"}})
    watching = watch.Watch()
    seen = []
    start = {"resource_version": listed.metadata.resource_version, "field_selector": "metadata.name=settings"}
    for event in watching.stream(core.list_namespaced_config_map, namespace, timeout_seconds=1, **start):
        seen.append((event["type"], event["object"].data))
    assert seen == [("ADDED", {"a": "1"}), ("MODIFIED", {"a": "2"})]
    core.delete_namespaced_config_map("settings", namespace)
    start["resource_version"] = watching.resource_version
    for event in watching.stream(core.list_namespaced_config_map, namespace, timeout_seconds=10, **start):
        seen.append((event["type"], event["object"].data))
        watching.stop()
    assert seen[2:] == [("DELETED", {"a": "2"})]


def test_a_watch_reconnects_by_itself_where_the_server_ends_it(core: Any, namespace: str) -> None:
    watching = watch.Watch()
    seen: list[str] = []

    def follow() -> None:
        # Without a timeout of its own the client goes on for ever; its connection is cut below.
        for event in watching.stream(core.list_namespaced_config_map, namespace, label_selector="seen"):
            seen.append(event["object"].metadata.name)
            if seen[-1] == "last":
                watching.stop()

    thread = threading.Thread(target=follow)
    thread.start()
    first = settings("first")
    first.metadata.labels = {"seen": "yes"}
    core.create_namespaced_config_map(namespace, first)
    wait_for("it sees the first", lambda: seen == ["first"])
    last = settings("last")
    last.metadata.labels = {"seen": "yes"}
    core.create_namespaced_config_map(namespace, last)
    thread.join(20)
    assert seen == ["first", "last"]


def test_a_version_that_is_too_old_is_gone(core: Any, namespace: str) -> None:
    core.create_namespaced_config_map(namespace, settings(a="1"))
    old = core.list_namespaced_config_map(namespace).metadata.resource_version
    # History is bounded by the size of what was superseded: 24 MiB.
    for number in range(30):
        body = {"data": {"filling": f"{number:02}" * 480_000}}
        core.patch_namespaced_config_map("settings", namespace, body)
    with pytest.raises(ApiException) as gone:
        for _ in watch.Watch().stream(
            core.list_namespaced_config_map, namespace, resource_version=old, timeout_seconds=5
        ):
            pass
    assert (gone.value.status, gone.value.reason[:8]) == (410, "Expired:")
    # Without a timeout the client may list anew by itself, as it does from now on.
    fresh = core.list_namespaced_config_map(namespace).metadata.resource_version
    core.patch_namespaced_config_map("settings", namespace, {"data": None})
    events = watch.Watch().stream(
        core.list_namespaced_config_map,
        namespace,
        resource_version=fresh,
        field_selector="metadata.name=settings",
        timeout_seconds=10,
    )
    assert next(events)["object"].data is None
    events.close()


def test_bookmarks_and_initial_events(core: Any, namespace: str) -> None:
    core.create_namespaced_config_map(namespace, settings(a="1"))
    types = []
    for event in watch.Watch().stream(
        core.list_namespaced_config_map,
        namespace,
        send_initial_events=True,
        resource_version_match="NotOlderThan",
        allow_watch_bookmarks=True,
        field_selector="metadata.name=settings",
        timeout_seconds=1,
    ):
        annotations = event["raw_object"]["metadata"].get("annotations") or {}
        types.append((event["type"], annotations.get("k8s.io/initial-events-end")))
    assert types[:2] == [("ADDED", None), ("BOOKMARK", "true")]


def test_an_informer_keeps_a_cache(core: Any, namespace: str) -> None:
    heard: list[tuple[str, str]] = []
    informer = SharedInformer(core.list_namespaced_config_map, namespace=namespace, label_selector="x=y")
    for kind in ("ADDED", "MODIFIED", "DELETED"):
        informer.add_event_handler(
            kind, lambda obj, kind=kind: heard.append((kind, (obj.data or {}).get("a", "")))
        )
    informer.start()
    try:
        body = settings(a="1")
        body.metadata.labels = {"x": "y"}
        core.create_namespaced_config_map(namespace, body)
        wait_for("it hears of the creation", lambda: ("ADDED", "1") in heard)
        core.patch_namespaced_config_map("settings", namespace, {"data": {"a": "2"}})
        wait_for("it hears of the change", lambda: ("MODIFIED", "2") in heard)
        assert [item.data for item in informer.cache.list()] == [{"a": "2"}]
        core.delete_namespaced_config_map("settings", namespace)
        wait_for("it hears of the deletion", lambda: ("DELETED", "2") in heard)
        assert informer.cache.list() == []
    finally:
        informer.stop()


# Leader election.


@pytest.mark.parametrize("lock_class", [LeaseLock, ConfigMapLock])
def test_leadership_passes_on_when_the_leader_ends(api: Any, namespace: str, lock_class: Any) -> None:
    history: list[str] = []
    looks: list[str] = []
    ending = {"first": threading.Event(), "second": threading.Event()}

    def candidate(name: str) -> threading.Thread:
        def lead() -> None:
            history.append(f"{name} leads")
            ending[name].wait(20)
            raise RuntimeError(f"{name} gives up")

        lock = lock_class("election", namespace, name)
        look = lock.get

        def get(*arguments: str) -> Any:
            looks.append(name)
            return look(*arguments)

        lock.get = get
        settings = electionconfig.Config(
            lock,
            lease_duration=3,
            renew_deadline=2,
            retry_period=1,
            onstarted_leading=lead,
            onstopped_leading=lambda: history.append(f"{name} stops"),
        )
        thread = threading.Thread(target=leaderelection.LeaderElection(settings).run, daemon=True)
        thread.start()
        return thread

    first = candidate("first")
    wait_for("the first leads", lambda: history == ["first leads"])
    second = candidate("second")
    # Whoever asks a third time was refused twice.
    wait_for("the second was refused", lambda: looks.count("second") > 2)
    assert history == ["first leads"]
    ending["first"].set()
    first.join(20)
    wait_for("the second leads", lambda: history[-1] == "second leads")
    assert history == ["first leads", "first stops", "second leads"]
    if lock_class is LeaseLock:
        spec = client.CoordinationV1Api(api).read_namespaced_lease("election", namespace).spec
        assert spec.holder_identity == "second"
        assert spec.acquire_time <= spec.renew_time <= datetime.datetime.now(datetime.UTC)
    ending["second"].set()
    second.join(20)
    assert not second.is_alive()


# Files.


def test_create_from_yaml_makes_every_document(api: Any, core: Any, namespace: str, tmp_path: Path) -> None:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
    }
    file = tmp_path / "all.yaml"
    documents = [api.sanitize_for_serialization(deployment()), service]
    documents[0].update(apiVersion="apps/v1", kind="Deployment")
    file.write_text(yaml.safe_dump_all(documents))
    utils.create_from_yaml(api, str(file), namespace=namespace)
    assert core.read_namespaced_service("web", namespace).spec.cluster_ip
    with pytest.raises(utils.FailToCreateError, match="already exists"):
        utils.create_from_yaml(api, str(file), namespace=namespace)
    documents[1]["spec"]["ports"][0]["name"] = "http"
    file.write_text(yaml.safe_dump_all(documents[1:]))
    utils.create_from_yaml(api, str(file), namespace=namespace, apply=True)
    assert core.read_namespaced_service("web", namespace).spec.ports[0].name == "http"
