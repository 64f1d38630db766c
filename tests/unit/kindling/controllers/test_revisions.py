"""Revisions of templates, as clients compare them."""

from __future__ import annotations

import json
from typing import Any

from kindling.controllers.workloads import revisions


def owner(template: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": "o", "namespace": "n"}, "spec": {"template": template}}


def test_a_revision_has_its_keys_in_order_at_every_depth() -> None:
    template = {
        "spec": {"b": 1, "a": [{"d": 1, "c": [[{"z": 0, "y": 0}]]}]},
        "metadata": {"labels": {"x": "y"}},
    }
    data = revisions.data_of(owner(template))
    assert json.dumps(data) == json.dumps(data, sort_keys=True)
    assert data["spec"]["template"]["$patch"] == "replace"


def test_the_template_comes_back_as_it_was_and_is_not_touched() -> None:
    template = {"spec": {"b": [1, {"a": None}]}, "metadata": {}}
    made = revisions.data_of(owner(template))
    assert revisions.template_of({"data": made}) == template
    assert list(template) == ["spec", "metadata"]


def test_lists_keep_their_order() -> None:
    assert revisions.data_of(owner({"spec": [3, 1, 2]}))["spec"]["template"]["spec"] == [3, 1, 2]
