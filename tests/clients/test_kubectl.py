"""kubectl, as installed, against the bare API server: its commands and what it prints."""

from __future__ import annotations

import base64
import json
import re
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.clients.live import ADMINISTRATOR, NODE, Document, LiveCluster

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")

IMAGE = "registry.example/web:1"


class Kubectl:
    """kubectl in a namespace of its own."""

    def __init__(self, cluster: LiveCluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace

    def attempt(
        self, *arguments: str, document: object = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run it, whatever comes of it; `document` is its standard input."""
        return subprocess.run(
            ["kubectl", *(("-n", self.namespace) if self.namespace else ()), *arguments],
            input=json.dumps(document) if document is not None else "",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**self.cluster.environment, **environment},
        )

    def __call__(self, *arguments: str, document: object = None, **environment: str) -> str:
        """Its output, which must be a success."""
        done = self.attempt(*arguments, document=document, **environment)
        assert done.returncode == 0, f"{arguments}: {done.stdout}\n{done.stderr}"
        return done.stdout

    def refused(self, *arguments: str, document: object = None) -> str:
        """What it says when it fails."""
        done = self.attempt(*arguments, document=document)
        assert done.returncode != 0, done.stdout
        return done.stderr.strip()

    def get(self, *arguments: str) -> Document:
        """An object."""
        found: Document = json.loads(self("get", *arguments, "-o", "json"))
        return found


@pytest.fixture
def kubectl(cluster: LiveCluster, namespace: str) -> Kubectl:
    """kubectl in a namespace of its own."""
    return Kubectl(cluster, namespace)


def settings(**data: str) -> Document:
    """A ConfigMap called settings."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": data}


def web(replicas: int = 1, image: str = IMAGE) -> Document:
    """A Deployment called web."""
    container = {"name": "web", "image": image, "ports": [{"containerPort": 80}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}},
        },
    }


def gadgets() -> Document:
    """A CustomResourceDefinition with columns, scale and status."""
    spec = {
        "type": "object",
        "description": "What the gadget is to be.",
        "required": ["size"],
        "properties": {
            "size": {"type": "integer", "minimum": 1, "description": "How many parts it has."},
            "colour": {"type": "string", "default": "grey", "enum": ["grey", "green"]},
        },
    }
    status = {"type": "object", "properties": {"size": {"type": "integer"}}}
    schema = {
        "type": "object",
        "description": "A gadget.",
        "properties": {"spec": spec, "status": status},
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"},
        },
        "additionalPrinterColumns": [
            {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
            {"name": "Colour", "type": "string", "jsonPath": ".spec.colour", "priority": 1},
        ],
    }
    names = {"plural": "gadgets", "kind": "Gadget", "shortNames": ["gd"], "categories": ["toys"]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.kubectl.example"},
        "spec": {"group": "kubectl.example", "scope": "Namespaced", "names": names, "versions": [version]},
    }


def gadget(name: str, **spec: object) -> Document:
    """A gadget."""
    return {
        "apiVersion": "kubectl.example/v1",
        "kind": "Gadget",
        "metadata": {"name": name},
        "spec": spec,
    }


@pytest.fixture
def gadgets_served(kubectl: Kubectl) -> Iterator[None]:
    """The definition of gadgets, established; gone with all gadgets afterwards."""
    kubectl("apply", "-f", "-", document=gadgets())
    kubectl("wait", "--for=condition=Established", "crd/gadgets.kubectl.example", "--timeout=20s")
    yield
    kubectl("delete", "crd", "gadgets.kubectl.example", "--timeout=30s")
    assert kubectl.attempt("get", "gadgets").returncode == 1


# Writing.


def test_create_from_a_file_and_from_options(kubectl: Kubectl, tmp_path: Path) -> None:
    assert kubectl("create", "-f", "-", document=settings(a="1")) == "configmap/settings created\n"
    assert 'configmaps "settings" already exists' in kubectl.refused(
        "create", "-f", "-", document=settings(a="1")
    )
    kubectl("create", "secret", "generic", "pair", "--from-literal=user=me")
    assert kubectl.get("secret", "pair")["data"] == {"user": base64.b64encode(b"me").decode()}
    two = tmp_path / "two.yaml"
    parts = [{**settings(), "metadata": {"name": name}} for name in ("one", "two")]
    two.write_text(yaml.safe_dump_all(parts))
    assert kubectl("create", "-f", str(two)).splitlines() == [
        "configmap/one created",
        "configmap/two created",
    ]
    named = kubectl("create", "configmap", "dry", "--dry-run=server", "-o", "name")
    assert named == "configmap/dry\n"
    assert kubectl.attempt("get", "configmap", "dry").returncode == 1


def test_client_side_apply_creates_changes_and_removes(kubectl: Kubectl) -> None:
    def apply(**data: str) -> str:
        return kubectl("apply", "-f", "-", document=settings(**data))

    assert apply(a="1", b="2") == "configmap/settings created\n"
    assert apply(a="1", b="2") == "configmap/settings unchanged\n"
    kubectl("patch", "configmap", "settings", "--type=merge", "-p", '{"data":{"other":"3"}}')
    assert apply(a="4") == "configmap/settings configured\n"
    assert kubectl.get("configmap", "settings")["data"] == {"a": "4", "other": "3"}


def test_client_side_apply_merges_lists_by_their_keys(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", document=web())
    sidecar = {"spec": {"template": {"spec": {"containers": [{"name": "log", "image": "log:1"}]}}}}
    kubectl("patch", "deployment", "web", "-p", json.dumps(sidecar))
    kubectl("apply", "-f", "-", document=web(image="registry.example/web:2"))
    containers = kubectl.get("deployment", "web")["spec"]["template"]["spec"]["containers"]
    images = {container["name"]: container["image"] for container in containers}
    assert images == {"web": "registry.example/web:2", "log": "log:1"}


def test_apply_with_prune_deletes_what_is_no_longer_in_the_set(kubectl: Kubectl) -> None:
    both = {
        "apiVersion": "v1",
        "kind": "List",
        "items": [
            {**settings(), "metadata": {"name": name, "labels": {"set": "x"}}} for name in ("stays", "goes")
        ],
    }
    kubectl("apply", "-f", "-", document=both)
    one = both["items"][0]
    pruning = ("--prune", "-l", "set=x", "--prune-allowlist=core/v1/ConfigMap")
    assert "configmap/goes pruned" in kubectl("apply", "-f", "-", *pruning, document=one)


def test_server_side_apply_owns_shares_conflicts_and_forces(kubectl: Kubectl) -> None:
    def apply(manager: str, *options: str, **data: str) -> subprocess.CompletedProcess[str]:
        arguments = ("apply", "--server-side", f"--field-manager={manager}", "-f", "-", *options)
        return kubectl.attempt(*arguments, document=settings(**data))

    assert apply("one", a="1").stdout == "configmap/settings serverside-applied\n"
    refused = apply("two", a="2")
    assert refused.returncode == 1
    assert 'conflict with "one": .data.a' in refused.stderr
    assert apply("two", "--force-conflicts", a="2").returncode == 0
    assert apply("one", b="1").returncode == 0
    assert kubectl.get("configmap", "settings")["data"] == {"a": "2", "b": "1"}


def test_client_side_applied_objects_move_to_server_side_apply(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", document=settings(a="1", b="2"))
    kubectl("apply", "--server-side", "-f", "-", document=settings(a="3"))
    found = kubectl.get("configmap", "settings", "--show-managed-fields")
    assert found["data"] == {"a": "3"}
    owners = [(entry["manager"], entry["operation"]) for entry in found["metadata"]["managedFields"]]
    assert ("kubectl", "Apply") in owners
    assert "kubectl-client-side-apply" not in [name for name, _ in owners]


def test_diff_shows_what_apply_would_change(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", document=settings(a="1"))
    assert kubectl.attempt("diff", "-f", "-", document=settings(a="1")).returncode == 0
    for options in ((), ("--server-side", "--force-conflicts")):
        done = kubectl.attempt("diff", *options, "-f", "-", document=settings(a="2"))
        assert done.returncode == 1, done.stderr
        assert {'-  a: "1"', '+  a: "2"'} <= set(done.stdout.splitlines())
    assert kubectl.get("configmap", "settings")["data"] == {"a": "1"}


def test_edit_saves_what_the_editor_changed(kubectl: Kubectl, tmp_path: Path) -> None:
    kubectl("create", "-f", "-", document=settings(a="old"))
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/a: old/a: new/' \"$1\"\n")
    editor.chmod(0o755)
    assert kubectl("edit", "configmap", "settings", EDITOR=str(editor)) == "configmap/settings edited\n"
    assert kubectl.get("configmap", "settings")["data"] == {"a": "new"}
    same = kubectl.attempt("edit", "configmap", "settings", EDITOR="true")
    assert "no changes made" in same.stdout + same.stderr


def test_edit_of_a_subresource(kubectl: Kubectl, gadgets_served: None, tmp_path: Path) -> None:
    kubectl("create", "-f", "-", document=gadget("g", size=2))
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nprintf 'status:\\n  size: 7\\n' >> \"$1\"\n")
    editor.chmod(0o755)
    kubectl("edit", "gadget", "g", "--subresource=status", EDITOR=str(editor))
    assert kubectl.get("gadget", "g")["status"] == {"size": 7}


@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        ("json", [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "new:1"}]),
        ("merge", {"spec": {"template": {"spec": {"containers": [{"name": "web", "image": "new:1"}]}}}}),
        ("strategic", {"spec": {"template": {"spec": {"containers": [{"name": "web", "image": "new:1"}]}}}}),
    ],
)
def test_three_kinds_of_patches(kubectl: Kubectl, kind: str, patch: object) -> None:
    kubectl("create", "-f", "-", document=web())
    text = json.dumps(patch)
    assert (
        kubectl("patch", "deployment", "web", f"--type={kind}", "-p", text) == "deployment.apps/web patched\n"
    )
    again = kubectl("patch", "deployment", "web", f"--type={kind}", "-p", text)
    assert again == "deployment.apps/web patched (no change)\n"
    (container,) = kubectl.get("deployment", "web")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "new:1"
    # A merge patch replaces the list, so the port is gone; the others keep it.
    assert ("ports" in container) == (kind != "merge")


def test_patches_of_subresources_and_refused_ones(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", document=web())
    kubectl(
        "patch", "deployment", "web", "--subresource=scale", "--type=merge", "-p", '{"spec":{"replicas":0}}'
    )
    assert kubectl.get("deployment", "web")["spec"]["replicas"] == 0
    said = kubectl.refused("patch", "deployment", "web", "-p", '{"spec":{"replicas":"many"}}')
    assert said.endswith("cannot convert string to int32")
    said = kubectl.refused("patch", "deployment", "web", "-p", '{"spec":{"replicas":-1}}')
    assert "spec.replicas: Invalid value: -1: must be greater than or equal to 0" in said


def test_replace_needs_the_newest_version_and_force_makes_anew(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", document=settings(a="1"))
    old = kubectl.get("configmap", "settings")
    assert kubectl("replace", "-f", "-", document=settings(b="2")) == "configmap/settings replaced\n"
    assert kubectl.get("configmap", "settings")["data"] == {"b": "2"}
    assert "the object has been modified" in kubectl.refused("replace", "-f", "-", document=old)
    said = kubectl("replace", "--force", "-f", "-", document=settings(c="3"))
    assert said.splitlines() == ['configmap "settings" deleted', "configmap/settings replaced"]
    assert kubectl.get("configmap", "settings")["metadata"]["uid"] != old["metadata"]["uid"]


def test_label_and_annotate(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", document=settings())
    assert kubectl("label", "configmap", "settings", "app=x", "tier=y") == "configmap/settings labeled\n"
    assert "already has a value (x)" in kubectl.refused("label", "configmap", "settings", "app=z")
    kubectl("label", "configmap", "settings", "app=z", "--overwrite", "tier-")
    kubectl("annotate", "configmap", "--all", "note=some text")
    metadata = kubectl.get("configmap", "settings")["metadata"]
    assert (metadata["labels"], metadata["annotations"]) == ({"app": "z"}, {"note": "some text"})
    assert kubectl("label", "configmap", "settings", "--list") == "app=z\n"
    said = kubectl.refused("label", "configmap", "settings", "app=not valid")
    assert "a valid label must be an empty string or consist of alphanumeric characters" in said


def test_scale_and_set_change_the_deployment(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", document=web())
    assert kubectl("scale", "deployment/web", "--replicas=3") == "deployment.apps/web scaled\n"
    said = kubectl.refused("scale", "deployment/web", "--replicas=4", "--current-replicas=1")
    assert "Expected replicas to be 1, was 3" in said
    kubectl("set", "image", "deployment/web", "web=other:2")
    kubectl("set", "env", "deployment/web", "A=b")
    kubectl("set", "resources", "deployment/web", "--limits=cpu=200m,memory=64Mi")
    kubectl("set", "serviceaccount", "deployment/web", "default")
    found = kubectl.get("deployment", "web")["spec"]
    (container,) = found["template"]["spec"]["containers"]
    assert (found["replicas"], container["image"], container["env"]) == (
        3,
        "other:2",
        [{"name": "A", "value": "b"}],
    )
    assert container["resources"]["limits"] == {"cpu": "200m", "memory": "64Mi"}
    kubectl("autoscale", "deployment/web", "--min=1", "--max=5", "--cpu-percent=80")
    assert kubectl.get("hpa", "web")["spec"]["maxReplicas"] == 5


def test_rollouts_are_followed_paused_restarted_and_undone(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", document=web(replicas=2))
    status = ("rollout", "status", "deployment/web", "--timeout=40s")
    assert "successfully rolled out" in kubectl(*status)
    kubectl("set", "image", "deployment/web", "web=other:2")
    assert "successfully rolled out" in kubectl(*status)
    assert [
        line.split()[0] for line in kubectl("rollout", "history", "deployment/web").splitlines()[2:] if line
    ] == [
        "1",
        "2",
    ]
    assert IMAGE in kubectl("rollout", "history", "deployment/web", "--revision=1")
    assert kubectl("rollout", "pause", "deployment/web") == "deployment.apps/web paused\n"
    assert "paused" in kubectl.refused("rollout", "restart", "deployment/web")
    kubectl("rollout", "resume", "deployment/web")
    assert kubectl("rollout", "undo", "deployment/web") == "deployment.apps/web rolled back\n"
    assert "successfully rolled out" in kubectl(*status)
    spec = kubectl.get("deployment", "web")["spec"]["template"]["spec"]
    assert spec["containers"][0]["image"] == IMAGE
    assert kubectl("rollout", "restart", "deployment/web") == "deployment.apps/web restarted\n"
    assert "successfully rolled out" in kubectl(*status)


def test_wait_for_conditions_values_creation_and_deletion(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", document=web())
    assert "condition met" in kubectl("wait", "--for=condition=Available", "deployment/web", "--timeout=30s")
    kubectl("wait", "--for=jsonpath={.status.readyReplicas}=1", "deployment/web", "--timeout=20s")
    kubectl("wait", "--for=condition=Ready", "pod", "-l", "app=web", "--timeout=20s")
    assert "timed out" in kubectl.refused("wait", "--for=condition=Nothing", "deployment/web", "--timeout=1s")
    kubectl("delete", "deployment", "web", "--wait=false")
    kubectl("wait", "--for=delete", "pod", "-l", "app=web", "--timeout=30s")
    assert kubectl("get", "pods") == ""


def test_delete_by_name_selector_all_and_with_its_cascades(kubectl: Kubectl) -> None:
    for name in ("a", "b", "c"):
        kubectl("create", "configmap", name)
    kubectl("label", "configmap", "b", "x=y")
    assert kubectl("delete", "configmap", "a") == 'configmap "a" deleted\n'
    assert kubectl("delete", "configmap", "-l", "x=y") == 'configmap "b" deleted\n'
    kubectl("delete", "configmap", "--field-selector=metadata.name=c")
    assert 'configmaps "a" not found' in kubectl.refused("delete", "configmap", "a")
    assert kubectl("delete", "configmap", "a", "--ignore-not-found") == ""
    kubectl("create", "-f", "-", document=web())
    kubectl("rollout", "status", "deployment/web", "--timeout=30s")
    kubectl("delete", "deployment", "web", "--cascade=orphan")
    (owned,) = kubectl.get("replicasets")["items"]
    assert "ownerReferences" not in owned["metadata"]
    kubectl("delete", "replicaset", "--all", "--cascade=foreground", "--timeout=30s")
    assert kubectl.get("pods")["items"] == []


def test_a_pod_is_deleted_by_force_at_once(kubectl: Kubectl) -> None:
    kubectl("run", "lonely", f"--image={IMAGE}", "--overrides", '{"spec":{"nodeName":"nowhere"}}')
    done = kubectl.attempt("delete", "pod", "lonely", "--force", "--grace-period=0", "--timeout=10s")
    assert (done.returncode, done.stdout) == (0, 'pod "lonely" force deleted\n')


# Reading.


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
            process.send_signal(signal.SIGINT)


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
    told = kubectl("explain", "gadget.spec")
    assert "What the gadget is to be." in told
    assert re.search(r"size\s+<integer> -required-\s+How many parts it has.", told)
    assert re.search(r"colour\s+<string>\s+enum: grey, green", told)
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


# Who may do what.


def test_auth_can_i_and_whoami(kubectl: Kubectl) -> None:
    assert kubectl("auth", "can-i", "create", "deployments.apps") == "yes\n"
    account = f"--as=system:serviceaccount:{kubectl.namespace}:default"
    denied = kubectl.attempt("auth", "can-i", "delete", "configmaps", account)
    assert (denied.stdout, denied.returncode) == ("no\n", 1)
    kubectl("create", "role", "cleaner", "--verb=delete", "--resource=configmaps")
    kubectl(
        "create", "rolebinding", "cleaner", "--role=cleaner", f"--serviceaccount={kubectl.namespace}:default"
    )
    assert kubectl("auth", "can-i", "delete", "configmaps", account) == "yes\n"
    rows = [line.split() for line in kubectl("auth", "can-i", "--list", account).splitlines()]
    assert ["configmaps", "[]", "[]", "[delete]"] in rows
    assert ADMINISTRATOR in kubectl("auth", "whoami")
    assert kubectl(
        "auth", "whoami", "-o", "jsonpath={.status.userInfo.groups}", "--as=x", "--as-group=y"
    ) == ('["y","system:authenticated"]')


def test_auth_reconcile_extends_roles(kubectl: Kubectl) -> None:
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "reader", "namespace": kubectl.namespace},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
    }
    assert "reader reconciled" in kubectl("auth", "reconcile", "-f", "-", document=role)
    more = {**role, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]}
    kubectl("auth", "reconcile", "-f", "-", document=more)
    verbs = {verb for rule in kubectl.get("role", "reader")["rules"] for verb in rule["verbs"]}
    assert verbs == {"get", "list"}


def test_tokens_of_service_accounts_are_made_and_accepted(kubectl: Kubectl, tmp_path: Path) -> None:
    kubectl("create", "serviceaccount", "robot")
    token = kubectl(
        "create",
        "token",
        "robot",
        "--duration=20m",
        "--audience=https://kubernetes.default.svc.cluster.local",
    )
    claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    assert claims["exp"] - claims["iat"] == 1200
    # With the certificate of the kubeconfig the token would not count, so it gets a file without one.
    document = yaml.safe_load(kubectl.cluster.kubeconfig.read_text())
    document["users"] = [{"name": "admin", "user": {"token": token.strip()}}]
    config = tmp_path / "robot"
    config.write_text(yaml.safe_dump(document))
    name = ("auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
    account = f"system:serviceaccount:{kubectl.namespace}:robot"
    assert kubectl(*name, KUBECONFIG=str(config)) == account
    done = kubectl.attempt("get", "pods", KUBECONFIG=str(config))
    assert done.stderr == (
        f'Error from server (Forbidden): pods is forbidden: User "{account}" cannot list resource "pods" '
        f'in API group "" in the namespace "{kubectl.namespace}"\n'
    )


def test_certificate_requests_are_approved_and_denied(kubectl: Kubectl) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "jane")])
    signed = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    text = base64.b64encode(signed.public_bytes(serialization.Encoding.PEM)).decode()

    def ask(name: str) -> None:
        document = {
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"name": name},
            "spec": {
                "request": text,
                "signerName": "kubernetes.io/kube-apiserver-client",
                "usages": ["client auth"],
            },
        }
        kubectl("create", "-f", "-", document=document)

    for name in ("jane", "jim"):
        ask(name)
    assert "approved" in kubectl("certificate", "approve", "jane")
    assert "denied" in kubectl("certificate", "deny", "jim")
    rows = {line.split()[0]: line.split() for line in kubectl("get", "csr", "--no-headers").splitlines()}
    assert (rows["jane"][-1], rows["jim"][-1]) == ("Approved", "Denied")
    assert rows["jane"][2:4] == ["kubernetes.io/kube-apiserver-client", ADMINISTRATOR]
    kubectl("delete", "csr", "jane", "jim")


# The rest.


def test_the_context_names_the_namespace(cluster: LiveCluster, namespace: str, tmp_path: Path) -> None:
    kubectl = Kubectl(cluster, "")
    file = tmp_path / "config"
    file.write_text(kubectl.cluster.kubeconfig.read_text())
    kubectl("config", "set-context", "live", f"--namespace={namespace}", KUBECONFIG=str(file))
    assert kubectl("config", "current-context", KUBECONFIG=str(file)) == "live\n"
    view = kubectl("config", "view", "--minify", "-o", "jsonpath={..namespace}", KUBECONFIG=str(file))
    assert view == namespace
    kubectl("create", "configmap", "here", KUBECONFIG=str(file))
    assert Kubectl(cluster, namespace).get("configmap", "here")["metadata"]["namespace"] == namespace


def test_cluster_info_version_and_health(kubectl: Kubectl) -> None:
    told = re.sub(r"\x1b\[[0-9;]*m", "", kubectl("cluster-info"))
    assert told.startswith(f"Kubernetes control plane is running at {kubectl.cluster.url}\n")
    version = json.loads(kubectl("version", "-o", "json"))["serverVersion"]
    assert (version["major"], version["minor"]) == ("1", "36")
    assert kubectl("get", "--raw", "/readyz") == "ok"
    assert "[+]poststarthook/bootstrap-objects ok" in kubectl("get", "--raw", "/readyz?verbose")


def test_top_says_that_there_are_no_metrics(kubectl: Kubectl) -> None:
    assert kubectl.refused("top", "nodes") == "error: Metrics API not available"
    assert kubectl.refused("top", "pods") == "error: Metrics API not available"


def test_proxy_passes_requests_on(kubectl: Kubectl) -> None:
    with subprocess.Popen(
        ["kubectl", "proxy", "--port=0"], stdout=subprocess.PIPE, text=True, env=kubectl.cluster.environment
    ) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().split()[-1]
            url = f"http://{address}/api/v1/namespaces/{kubectl.namespace}"
            with urllib.request.urlopen(url, timeout=20) as answer:
                assert json.load(answer)["metadata"]["name"] == kubectl.namespace
        finally:
            process.send_signal(signal.SIGINT)


def test_drain_cordons_the_node_and_evicts_its_pods(kubectl: Kubectl) -> None:
    kubectl("run", "moved", f"--image={IMAGE}")
    kubectl("wait", "--for=condition=Ready", "pod/moved", "--timeout=20s")
    try:
        said = kubectl(
            "drain", NODE, "--pod-selector=run=moved", "--force", "--timeout=30s", "--grace-period=1"
        )
        assert {f"node/{NODE} cordoned", "pod/moved evicted", f"node/{NODE} drained"} <= set(
            said.splitlines()
        )
        assert kubectl("get", "node", NODE, "--no-headers").split()[1] == "Ready,SchedulingDisabled"
        kubectl("taint", "node", NODE, "a=b:NoSchedule")
        kubectl("taint", "node", NODE, "a-")
    finally:
        kubectl("uncordon", NODE)


def test_a_namespace_goes_with_all_that_is_in_it(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", document=web())
    kubectl("create", "-f", "-", document=settings())
    assert "deleted" in kubectl("delete", "namespace", kubectl.namespace, "--timeout=40s")
    assert "not found" in kubectl.refused("get", "namespace", kubectl.namespace)


def test_kustomize_and_list_files(kubectl: Kubectl, tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml").write_text(
        "namePrefix: my-\nconfigMapGenerator:\n- name: made\n  literals: [a=b]\n"
    )
    (name,) = [line.split()[0] for line in kubectl("apply", "-k", str(tmp_path)).splitlines()]
    assert re.fullmatch(r"configmap/my-made-[0-9a-z]+", name)
    assert kubectl("diff", "-k", str(tmp_path)) == ""


def test_logs_of_a_pod_without_a_real_node_fail_clearly(kubectl: Kubectl) -> None:
    kubectl("run", "mute", f"--image={IMAGE}")
    kubectl("wait", "--for=condition=Ready", "pod/mute", "--timeout=20s")
    assert kubectl.refused("logs", "mute").startswith("Error from server")
