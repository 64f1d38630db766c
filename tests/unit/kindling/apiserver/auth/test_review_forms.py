"""What reviews make of fields that are empty, and what they refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.apiserver import running_server

from kubecore.errors import StatusError
from kubecore.resources import ResourceType

_REVIEWS = ResourceType(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
_ATTRIBUTES = {"verb": "get", "resource": "pods"}


async def _refusal(directory: Path, review: dict[str, Any]) -> str:
    async with running_server(directory) as running, running.client() as client:
        with pytest.raises(StatusError) as caught:
            await client.create(_REVIEWS, review)
    return caught.value.message


async def test_empty_fields_and_those_of_the_server_are_not_quoted(tmp_path: Path) -> None:
    metadata = {"name": "x", "uid": "u", "resourceVersion": "", "finalizers": None}
    spec = {"user": "ann", "extra": {}, "groups": None, "resourceAttributes": {**_ATTRIBUTES, "group": ""}}
    refusal = await _refusal(tmp_path, {"metadata": metadata, "spec": spec})
    assert 'metadata: Invalid value: {"name":"x","managedFields":[' in refusal
    attributes = '{".":{},"f:resource":{},"f:verb":{}}'
    assert f'"fieldsV1":{{"f:spec":{{"f:resourceAttributes":{attributes},"f:user":{{}}}}}}' in refusal


async def test_a_selector_without_any_condition_is_refused(tmp_path: Path) -> None:
    spec = {"user": "ann", "resourceAttributes": {**_ATTRIBUTES, "labelSelector": {}}}
    assert (
        "spec.resourceAttributes.labelSelector.requirements: Required value: when "
        "spec.resourceAttributes.labelSelector is specified, requirements or rawSelector is required"
    ) in await _refusal(tmp_path, {"spec": spec})
