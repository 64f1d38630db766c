"""Operations as OpenAPI describes them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.apiserver import generic_definition

from kindling.apiserver.discovery.openapi_paths import Style, paths_of
from kindling.apiserver.registry.definition import Strategy
from kubecore.resources import CONFIG_MAPS

_STATUS = "io.k8s.apimachinery.pkg.apis.meta.v1.Status"
_NAME = "io.k8s.api.core.v1.ConfigMap"


class _Returning(Strategy):
    returns_deleted_object = True


def deletion(version: int, strategy: Strategy) -> dict[str, Any]:
    """The operation that deletes one config map."""
    definition = generic_definition(CONFIG_MAPS, strategy=strategy, openapi_name=_NAME)
    paths = dict(paths_of(definition, Style(version)))
    found: dict[str, Any] = paths["/api/v1/namespaces/{namespace}/configmaps/{name}"]["delete"]
    return found


@pytest.mark.parametrize(("strategy", "answer"), [(Strategy(), _STATUS), (_Returning(), _NAME)])
def test_deletions_answer_a_status_or_the_object(strategy: Strategy, answer: str) -> None:
    responses = deletion(2, strategy)["responses"]
    for code in ("200", "202"):
        assert responses[code]["schema"] == {"$ref": f"#/definitions/{answer}"}


def test_deletions_may_carry_options() -> None:
    reference = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"
    body = deletion(2, Strategy())["parameters"][0]
    assert body == {"name": "body", "in": "body", "schema": {"$ref": f"#/definitions/{reference}"}}
    assert deletion(3, Strategy())["requestBody"] == {
        "content": {"*/*": {"schema": {"$ref": f"#/components/schemas/{reference}"}}}
    }
