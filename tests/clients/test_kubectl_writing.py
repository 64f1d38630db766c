"""kubectl, as installed, writes: creations, applies, edits, patches, rollouts, deletions."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path

import pytest
import yaml
from tests.clients.kubectl import IMAGE, Kubectl, gadget, needs_kubectl, settings, web

pytestmark = needs_kubectl


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
        ("json", [{"op": "replace", "path": "/template/spec/containers/0/image", "value": "new:1"}]),
        ("merge", {"template": {"spec": {"containers": [{"name": "web", "image": "new:1"}]}}}),
        ("strategic", {"template": {"spec": {"containers": [{"name": "web", "image": "new:1"}]}}}),
    ],
)
def test_three_kinds_of_patches(kubectl: Kubectl, kind: str, patch: object) -> None:
    # A kind that no controller changes meanwhile.
    template = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "web"}}
    kubectl("create", "-f", "-", document={**template, "template": web()["spec"]["template"]})
    arguments = ("patch", "podtemplate", "web", f"--type={kind}", "-p", json.dumps(patch))
    assert kubectl(*arguments) == "podtemplate/web patched\n"
    assert kubectl(*arguments) == "podtemplate/web patched (no change)\n"
    (container,) = kubectl.get("podtemplate", "web")["template"]["spec"]["containers"]
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
    assert said.endswith("unrecognized type: int32")
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
