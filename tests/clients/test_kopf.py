"""kopf with an operator of its documentation's kind, run by kopf's own command line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.clients.live import Document, LiveCluster, wait_for

GROUP = "kopf.example"
PLURAL = "ephemeralvolumeclaims"
OPERATOR = Path(__file__).with_name("operators") / "volume_claims.py"


def definition() -> Document:
    """The definition of ephemeral volume claims."""
    kept: Document = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    spec = {"type": "object", "properties": {"size": {"type": "string"}, "note": {"type": "string"}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": PLURAL, "kind": "EphemeralVolumeClaim", "shortNames": ["evc"]},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {
                        "openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": kept}}
                    },
                }
            ],
        },
    }


class Operator:
    """The running operator and the objects that it sees."""

    def __init__(
        self, cluster: LiveCluster, namespace: str, process: subprocess.Popen[bytes], log: Path
    ) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.process = process
        self.log = log

    def path(self, name: str = "") -> str:
        """The path of the claims or one of them."""
        return f"/apis/{GROUP}/v1/namespaces/{self.namespace}/{PLURAL}/{name}".rstrip("/")

    def core(self, plural: str, name: str) -> Document | None:
        """A core object, if there is one."""
        path = f"/api/v1/namespaces/{self.namespace}/{plural}/{name}"
        status, found = self.cluster.request("GET", path)
        return found if status == 200 else None

    def create(self, name: str, **spec: str) -> tuple[int, Any]:
        """The answer to a new claim."""
        kind = {"apiVersion": f"{GROUP}/v1", "kind": "EphemeralVolumeClaim"}
        body = {**kind, "metadata": {"name": name, "labels": {"app": "w"}}, "spec": spec}
        return self.cluster.request("POST", self.path(), body)

    def get(self, name: str) -> Document:
        """A claim."""
        status, found = self.cluster.request("GET", self.path(name))
        assert status == 200, found
        return dict(found)

    def patch(self, name: str, body: Document) -> None:
        """Change a claim."""
        kind = "application/merge-patch+json"
        status, answer = self.cluster.request("PATCH", self.path(name), body, kind)
        assert status == 200, answer

    def until(self, what: str, look: Any) -> Any:
        """What `look` returns once it is true; the operator's log where it never is."""
        try:
            return wait_for(what, look, 20)
        except AssertionError as error:
            told = [line for line in self.log.read_text().splitlines() if "Timer" not in line]
            raise AssertionError("\n".join([str(error), *told[-60:]])) from error


@pytest.fixture
def operator(cluster: LiveCluster, namespace: str, tmp_path: Path) -> Iterator[Operator]:
    """The operator at work in a namespace of its own."""
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    status, answer = cluster.request("POST", definitions, definition())
    assert status == 201, answer
    log = tmp_path / "operator.log"
    environment = {**cluster.environment, "CERTIFICATES": str(cluster.folder)}
    command = [sys.executable, "-m", "kopf", "run", "--standalone", f"--namespace={namespace}", str(OPERATOR)]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
    made = Operator(cluster, namespace, process, log)
    hooks = "/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations/claims." + GROUP

    def ready() -> bool:
        assert process.poll() is None, log.read_text()
        found = [cluster.request("GET", hooks.format(kind)) for kind in ("validating", "mutating")]
        return all(status == 200 and answer.get("webhooks") for status, answer in found)

    try:
        made.until("the operator is ready", ready)
        yield made
    finally:
        # Before it ends: its own last writes would meet a webhook that is no longer there, which is a 500.
        for kind in ("validating", "mutating"):
            cluster.request("DELETE", hooks.format(kind))
        process.terminate()
        process.wait(20)
        # The operator marked what it looked after, and is no longer there to let it go.
        for claim in cluster.request("GET", made.path())[1]["items"]:
            made.patch(claim["metadata"]["name"], {"metadata": {"finalizers": None}})
        gone = f"{definitions}/{PLURAL}.{GROUP}"
        cluster.request("DELETE", gone)
        made.until("the definition is gone", lambda: cluster.request("GET", gone)[0] == 404)


def test_the_operator_follows_its_objects_from_creation_to_deletion(operator: Operator) -> None:
    assert operator.create("mine", size="2Gi")[0] == 201
    claim = operator.until(
        "the claim is made", lambda: operator.core("persistentvolumeclaims", "claim-of-mine")
    )
    assert claim["spec"]["resources"]["requests"] == {"storage": "2Gi"}
    assert claim["metadata"]["ownerReferences"][0]["uid"] == operator.get("mine")["metadata"]["uid"]
    operator.until("the status tells its name", lambda: operator.get("mine").get("status", {}).get("create"))
    assert operator.get("mine")["metadata"]["finalizers"] == ["kopf.zalando.org/KopfFinalizerMarker"]

    operator.patch("mine", {"spec": {"note": "keep"}, "metadata": {"labels": {"app": "x"}}})
    operator.until("the note is noted", lambda: operator.get("mine")["status"].get("note") == "keep")

    def carried() -> bool:
        found = operator.core("persistentvolumeclaims", "claim-of-mine") or {}
        metadata = found.get("metadata", {})
        return bool(
            metadata.get("labels") == {"app": "x"} and metadata.get("annotations", {}).get("note") == "keep"
        )

    operator.until("note and label are carried over", carried)
    operator.until("the timer has turned", lambda: operator.get("mine")["status"].get("turns", 0) >= 2)
    assert operator.get("mine")["status"]["same"] == 1

    assert operator.cluster.request("DELETE", operator.path("mine"))[0] == 200
    operator.until("it is gone", lambda: operator.cluster.request("GET", operator.path("mine"))[0] == 404)
    assert operator.core("configmaps", "farewell-mine")
    operator.until(
        "the claim is gone with it", lambda: not operator.core("persistentvolumeclaims", "claim-of-mine")
    )


def test_the_operator_admits_defaults_and_refuses(operator: Operator) -> None:
    assert operator.create("modest")[0] == 201
    assert operator.get("modest")["spec"] == {"size": "1Gi"}
    status, answer = operator.create("huge", size="7Ti")
    assert (status, answer["code"]) == (429, 429)
    assert "That is too much." in answer["message"]


def test_the_operator_reports_by_events(operator: Operator) -> None:
    assert operator.create("told", size="1Gi")[0] == 201
    path = f"/api/v1/namespaces/{operator.namespace}/events"

    def told() -> bool:
        items = operator.cluster.request("GET", path)[1]["items"]
        return any(
            item["involvedObject"]["name"] == "told" and item["message"] == "The claim is made."
            for item in items
        )

    operator.until("the operator's event", told)
    assert operator.process.poll() is None
