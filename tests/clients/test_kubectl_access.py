"""kubectl, as installed: rights, tokens, certificates, contexts, nodes and the server itself."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import urllib.request
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.clients.kubectl import IMAGE, Kubectl, needs_kubectl, settings, web
from tests.clients.live import ADMINISTRATOR, NODE, LiveCluster

pytestmark = needs_kubectl


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
            process.terminate()


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


def test_reviews_may_say_that_they_were_never_created(cluster: LiveCluster) -> None:
    """Older kubectls send the time of creation as null."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "metadata": {"creationTimestamp": None},
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}},
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    status, answer = cluster.request("POST", path, review)
    assert (status, answer["status"]["allowed"]) == (201, True)
    assert "creationTimestamp" not in answer["metadata"]
    named = {**review, "metadata": {"name": "x"}}
    assert cluster.request("POST", path, named)[0] == 422
