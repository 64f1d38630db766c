"""kubectl, as installed, reads: output formats, tables, watches, and what it tells of kinds."""

from __future__ import annotations

import json
import re
import subprocess

import yaml
from tests.clients.kubectl import Kubectl, gadget, needs_kubectl, settings, web
from tests.clients.live import NODE

pytestmark = needs_kubectl


def test_output_formats(kubectl: Kubectl) -> None:
    kubectl(
        "create", "-f", "-", document={**settings(k="v"), "metadata": {"name": "s", "labels": {"l": "m"}}}
    )
    assert kubectl.get("configmap", "s")["data"] == {"k": "v"}
    assert yaml.safe_load(kubectl("get", "configmap", "s", "-o", "yaml"))["data"] == {"k": "v"}
    assert kubectl("get", "configmap", "s", "-o", "name") == "configmap/s\n"
    assert kubectl("get", "configmap", "s", "-o", "jsonpath={.data.k}") == "v"
    assert kubectl("get", "configmap", "s", "-o", "go-template={{.data.k}}") == "v"
    columns = kubectl("get", "configmap", "s", "-o", "custom-columns=N:.metadata.name,V:.data.k").splitlines()
    assert [line.split() for line in columns] == [["N", "V"], ["s", "v"]]
    header, row = kubectl("get", "configmap", "s", "--show-labels").splitlines()
    assert (header.split(), row.split()[::3]) == (["NAME", "DATA", "AGE", "LABELS"], ["s", "l=m"])
    header, row = kubectl("get", "configmap", "s", "-L", "l").splitlines()
    assert (header.split()[-1], row.split()[-1]) == ("L", "m")
    raw = json.loads(kubectl("get", "--raw", f"/api/v1/namespaces/{kubectl.namespace}/configmaps/s"))
    assert raw["metadata"]["name"] == "s"


def test_lists_are_chunked_sorted_and_selected(kubectl: Kubectl) -> None:
    names = [f"n{number}" for number in range(7)]
    items = [{**settings(), "metadata": {"name": name, "labels": {"n": name[1]}}} for name in names]
    kubectl("create", "-f", "-", document={"apiVersion": "v1", "kind": "List", "items": items})
    options = ("get", "configmaps", "-l", "n", "--no-headers", "-o", "custom-columns=:.metadata.name")
    assert kubectl(*options, "--chunk-size=2").split() == names
    assert kubectl(*options, "--sort-by={.metadata.labels.n}").split() == names
    assert kubectl(*options, "-l", "n in (1,2),n!=2").split() == ["n1"]
    assert kubectl("get", "configmaps", "--field-selector=metadata.name=n3", "-o", "name") == "configmap/n3\n"
    everywhere = kubectl("get", "configmaps", "-A", "-l", "n=4", "--no-headers").split()
    assert everywhere[:2] == [kubectl.namespace, "n4"]
    assert kubectl("get", "configmaps", "-l", "n=none") == ""


def test_wide_tables_of_kinds_that_run(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", document=web())
    kubectl("rollout", "status", "deployment/web", "--timeout=30s")
    kubectl("expose", "deployment", "web", "--port=80")
    blocks = kubectl("get", "all", "-o", "wide").strip().split("\n\n")
    tables = {block.split("/")[0].split()[-1]: block.splitlines() for block in blocks}
    pod = tables["pod"]
    assert pod[0].split()[:6] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP"]
    assert (pod[1].split()[1:3], pod[1].split()[5:7]) == (["1/1", "Running"], ["10.1.2.3", NODE])
    service = tables["service"]
    assert service[0].split() == ["NAME", "TYPE", "CLUSTER-IP", "EXTERNAL-IP", "PORT(S)", "AGE", "SELECTOR"]
    deployment = tables["deployment.apps"]
    columns = ["UP-TO-DATE", "AVAILABLE", "AGE", "CONTAINERS", "IMAGES", "SELECTOR"]
    assert deployment[0].split() == ["NAME", "READY", *columns]
    assert deployment[1].split()[1:4] == ["1/1", "1", "1"]
    replica_set = tables["replicaset.apps"]
    columns = ["DESIRED", "CURRENT", "READY", "AGE", "CONTAINERS", "IMAGES", "SELECTOR"]
    assert replica_set[0].split() == ["NAME", *columns]
    header, row = kubectl("get", "nodes", "-o", "wide").splitlines()
    assert header.split()[:5] == ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]
    assert row.split()[:3] == [NODE, "Ready", "<none>"]
    described = kubectl("describe", "deployment", "web")
    assert "Replicas:               1 desired | 1 updated | 1 total | 1 available" in described
    assert "ScalingReplicaSet" in described
    assert "Endpoints:" in kubectl("describe", "service", "web")


def test_a_watch_prints_what_happens(kubectl: Kubectl) -> None:
    command = ["kubectl", "-n", kubectl.namespace, "get", "configmaps", "-l", "seen", "--watch", "-o"]
    columns = "custom-columns=E:.type,N:.object.metadata.name"
    with subprocess.Popen(
        [*command, columns, "--output-watch-events", "--no-headers"],
        stdout=subprocess.PIPE,
        text=True,
        env=kubectl.cluster.environment,
    ) as process:
        try:
            assert process.stdout is not None
            # Until its first line one cannot see that it watches, so the first object exists before.
            kubectl(
                "create",
                "-f",
                "-",
                document={**settings(), "metadata": {"name": "a", "labels": {"seen": "1"}}},
            )
            assert process.stdout.readline().split() == ["ADDED", "a"]
            kubectl("annotate", "configmap", "a", "x=y")
            assert process.stdout.readline().split() == ["MODIFIED", "a"]
            kubectl("label", "configmap", "a", "seen-")
            assert process.stdout.readline().split() == ["DELETED", "a"]
        finally:
            process.terminate()


def test_events_are_listed_in_order_of_time(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", document=web())
    kubectl("rollout", "status", "deployment/web", "--timeout=30s")
    header, *rows = kubectl("events", "--for", "deployment/web").splitlines()
    assert header.split() == ["LAST", "SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert any("ScalingReplicaSet" in row for row in rows)
    assert "SuccessfulCreate" in kubectl("get", "events", "--field-selector=reason=SuccessfulCreate")


# What it learns about kinds.


def test_explain_describes_built_in_kinds_and_custom_ones(kubectl: Kubectl, gadgets_served: None) -> None:
    told = kubectl("explain", "deployment.spec.strategy.rollingUpdate.maxSurge").splitlines()
    assert told[:3] == ["GROUP:      apps", "KIND:       Deployment", "VERSION:    v1"]
    assert "FIELD: maxSurge <IntOrString>" in told
    told = kubectl("explain", "pod.spec", "--recursive").splitlines()
    assert any(line.split()[:1] == ["containers"] and "-required-" in line for line in told)
    described = kubectl("explain", "gadget.spec")
    assert "What the gadget is to be." in described
    assert re.search(r"size\s+<integer> -required-\s+How many parts it has.", described)
    assert re.search(r"colour\s+<string>\s+enum: grey, green", described)
    assert "does not exist" in kubectl.refused("explain", "gadget.spec.weight")


def test_api_resources_and_versions(kubectl: Kubectl, gadgets_served: None) -> None:
    rows = [line.split() for line in kubectl("api-resources", "--no-headers").splitlines()]
    assert ["pods", "po", "v1", "true", "Pod"] in rows
    assert ["deployments", "deploy", "apps/v1", "true", "Deployment"] in rows
    assert ["gadgets", "gd", "kubectl.example/v1", "true", "Gadget"] in rows
    wide = kubectl("api-resources", "--api-group=apps", "-o", "wide", "--no-headers").splitlines()
    (deployments,) = [line for line in wide if line.startswith("deployments ")]
    assert deployments.split()[-2:] == ["create,delete,deletecollection,get,list,patch,update,watch", "all"]
    versions = kubectl("api-versions").split()
    assert {"v1", "apps/v1", "batch/v1", "kubectl.example/v1", "rbac.authorization.k8s.io/v1"} <= set(
        versions
    )
    names = kubectl("api-resources", "--categories=toys", "-o", "name")
    assert names == "gadgets.kubectl.example\n"


def test_custom_resources_are_validated_shown_scaled_and_applied(
    kubectl: Kubectl, gadgets_served: None
) -> None:
    kubectl("apply", "-f", "-", document=gadget("g", size=2))
    header, row = kubectl("get", "gd", "-o", "wide").splitlines()
    assert (header.split(), row.split()) == (["NAME", "SIZE", "COLOUR"], ["g", "2", "grey"])
    assert kubectl("scale", "gadget/g", "--replicas=5") == "gadget.kubectl.example/g scaled\n"
    assert kubectl.get("gadget", "g")["spec"] == {"size": 5, "colour": "grey"}
    said = kubectl.refused("apply", "-f", "-", document=gadget("bad", size=0))
    assert "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1" in said
    said = kubectl.refused("apply", "-f", "-", document=gadget("bad", size=1, weight=3))
    assert 'strict decoding error: unknown field "spec.weight"' in said
    warned = kubectl.attempt("apply", "--validate=warn", "-f", "-", document=gadget("odd", size=1, weight=3))
    assert (warned.returncode, warned.stderr) == (0, 'Warning: unknown field "spec.weight"\n')
    assert kubectl("get", "toys", "-o", "name").split() == [
        "gadget.kubectl.example/g",
        "gadget.kubectl.example/odd",
    ]
    said = kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", document=gadget("g", size=6))
    assert said == "gadget.kubectl.example/g serverside-applied\n"


def test_client_side_validation_uses_the_published_schemas(kubectl: Kubectl) -> None:
    wrong = web()
    wrong["spec"]["template"]["spec"]["containers"][0]["imagine"] = "x"
    said = kubectl.refused("create", "-f", "-", document=wrong)
    assert 'unknown field "spec.template.spec.containers[0].imagine"' in said
    done = kubectl.attempt("create", "--validate=ignore", "-f", "-", document=wrong)
    assert (done.returncode, done.stderr) == (0, "")
