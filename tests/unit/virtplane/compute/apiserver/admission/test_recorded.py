"""The webhooks against recorded requests, where a directory with recordings is at hand.

A recording is a list of HTTP requests with their answers. Those that create or change objects of one kind are
played through that kind's webhooks in the order of an API server: mutate, apply the patch, validate.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from kubecore.json import JsonObject, deep_copy, get_object
from kubecore.patch import apply_json_patch, apply_merge_patch
from kubecore.resources import ResourceType
from virtplane.api.config import ClusterConfig
from virtplane.compute.apiserver.admission import review
from virtplane.operators.kit.webhooks import Webhook
from virtplane.operators.kubevirt.strategy.webhooks import MUTATORS, VALIDATORS

ROOT = Path(os.environ["VIRTPLANE_REFERENCE"]) if "VIRTPLANE_REFERENCE" in os.environ else None
RECORDED = ROOT / "conformance/cases-kubevirt" if ROOT else None
AREAS = (
    "admission/vmi-rejected",
    "admission/vmi-defaults",
    "admission/vmi-accepted",
    "admission/vm-rejected",
    "admission/vm-defaults",
    "admission/vm-accepted",
)

pytestmark = pytest.mark.skipif(
    not (RECORDED and RECORDED.exists()), reason="VIRTPLANE_REFERENCE names no directory with recordings"
)

MATCHERS = {
    "{{uid}}": r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    "{{time}}": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ",
    "{{suffix}}": r"[a-z0-9]{5}",
    "{{string}}": r".*",
    "{{rv}}": r"\d+",
}
SERVER_FIELDS = (
    "name",
    "creationTimestamp",
    "generation",
    "managedFields",
    "namespace",
    "uid",
    "resourceVersion",
)


def cases() -> list[Any]:
    if not RECORDED or not RECORDED.exists():
        return []
    return [
        pytest.param(path, id=f"{area}/{path.stem}")
        for area in AREAS
        for path in sorted((RECORDED / area).glob("*.json"))
    ]


class World:
    """What the recording has made so far: other objects for lookups, and the installation's settings."""

    def __init__(self) -> None:
        self.kubevirt: JsonObject = {
            "metadata": {"name": "kubevirt", "namespace": "kubevirt"},
            "spec": {"configuration": {}},
            "status": {"phase": "Deployed", "defaultArchitecture": "amd64"},
        }
        self.objects: dict[tuple[str, str], JsonObject] = {}

    async def get(self, resource: ResourceType, name: str, namespace: str | None = None) -> JsonObject | None:
        return self.objects.get((resource.plural, name))

    async def list(self, resource: ResourceType, namespace: str | None = None) -> list[JsonObject]:
        return [document for (plural, _), document in self.objects.items() if plural == resource.plural]

    @property
    def config(self) -> ClusterConfig:
        return ClusterConfig(self.kubevirt)


def webhooks_for(entries: tuple[Webhook, ...], plural: str, operation: str) -> list[Webhook]:
    return [
        webhook
        for webhook in entries
        if plural in webhook.resources and (operation in webhook.operations or "*" in webhook.operations)
    ]


async def admit(
    world: World, plural: str, operation: str, document: JsonObject, old: JsonObject
) -> JsonObject:
    """The answer of an API server: the admitted object, or a Status."""
    base = {
        "operation": operation,
        "resource": {"resource": plural},
        "namespace": "ns",
        "userInfo": {"username": "admin"},
        "oldObject": old,
    }
    warnings: list[str] = []
    document = deep_copy(document)
    document["metadata"] = {**get_object(document, "metadata"), "namespace": "ns"}
    for webhook in webhooks_for(MUTATORS, plural, operation):
        answer = await review(webhook.path, {**base, "object": document}, world.config, world)
        if not answer.allowed:
            return refusal(webhook, answer.status or {})
        document = apply_json_patch(document, list(answer.patches))
        warnings += answer.warnings
    for webhook in webhooks_for(VALIDATORS, plural, operation):
        answer = await review(webhook.path, {**base, "object": document}, world.config, world)
        if not answer.allowed:
            return refusal(webhook, answer.status or {})
        warnings += answer.warnings
    return document


def refusal(webhook: Webhook, status: JsonObject) -> JsonObject:
    message = f'admission webhook "{webhook.name}" denied the request: {status["message"]}'
    document = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "code": status["code"],
    }
    for key in ("reason", "details"):
        if key in status:
            document[key] = status[key]
    return document


def differences(expected: Any, actual: Any, path: str = "") -> list[str]:
    if isinstance(expected, dict) and isinstance(actual, dict):
        found = []
        for key in sorted(set(expected) | set(actual)):
            if path in (".metadata", "") and key in SERVER_FIELDS:
                continue
            if key not in actual or key not in expected:
                found.append(
                    f"{path}.{key}: only {'expected' if key in expected else 'given'}: "
                    f"{expected.get(key, actual.get(key))}"
                )
            else:
                found += differences(expected[key], actual[key], f"{path}.{key}")
        return found
    if isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        pairs = zip(expected, actual, strict=True)
        return [line for index, pair in enumerate(pairs) for line in differences(*pair, f"{path}[{index}]")]
    if isinstance(expected, str) and "{{" in expected and isinstance(actual, str):
        pattern = re.escape(expected)
        for matcher, regex in MATCHERS.items():
            pattern = pattern.replace(re.escape(matcher), regex)
        return [] if re.fullmatch(pattern, actual) else [f"{path}: {expected!r} != {actual!r}"]
    return [] if expected == actual else [f"{path}: {expected!r} != {actual!r}"]


def judged(step: JsonObject, plural: str) -> bool:
    """Whether the webhooks alone decide the answer."""
    body = step["expect"].get("body")
    if step.get("compare") == "status" or not isinstance(body, dict):
        return False
    if plural not in ("virtualmachines", "virtualmachineinstances") or "colour" in json.dumps(
        step.get("body")
    ):
        return False
    message = body.get("message", "")
    return body.get("kind") != "Status" or message.startswith("admission webhook")


@pytest.mark.parametrize("path", cases())
async def test_answers_equal_the_recorded_ones(path: Path) -> None:
    world, problems = World(), []
    for number, step in enumerate(json.loads(path.read_text())["steps"]):
        if step.get("method") not in ("POST", "PATCH") or "expect" not in step:
            continue
        parts = step["path"].split("/")
        if "kubevirts" in parts and step["method"] == "PATCH":
            if not step.get("query"):
                world.kubevirt = apply_merge_patch(world.kubevirt, step["body"])
            continue
        if step["method"] != "POST":
            continue
        plural, body = parts[-1], step["body"]
        if judged(step, plural):
            answer = await admit(world, plural, "CREATE", body, {})
            expected = {key: value for key, value in step["expect"]["body"].items() if key != "apiVersion"}
            given = {key: value for key, value in answer.items() if key != "apiVersion"}
            problems += [f"step {number}: {line}" for line in differences(expected, given)]
        if step["expect"]["status"] == 201 and not step.get("query") and isinstance(body, dict):
            world.objects[(plural, get_object(body, "metadata").get("name", ""))] = body
    assert problems == []
