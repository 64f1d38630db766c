"""kubectl as a function, and what its tests write."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest
from tests.clients.live import Document, LiveCluster

needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
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
