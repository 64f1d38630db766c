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
from tests.support.reviews import World, admit

from kubecore.json import JsonObject, get_object
from kubecore.patch.mergepatch import apply_merge_patch

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
