"""Applied documents that become no object of their kind."""

from __future__ import annotations

import pytest

from kindling.apiserver.kinds.served import builtin_definitions
from kindling.apiserver.registry.patches import check_convertible
from kubecore.errors import StatusError

_DEFINITIONS = {each.resource.kind: each for each in builtin_definitions()}


@pytest.mark.parametrize(
    ("kind", "place", "shown"),
    [("ConfigMap", "n/a", "/v1, Kind=ConfigMap"), ("CSINode", "/a", "storage.k8s.io/v1, Kind=CSINode")],
)
def test_what_does_not_convert_is_named_with_its_kind(kind: str, place: str, shown: str) -> None:
    namespace, _, name = place.partition("/")
    metadata = {"name": name, "namespace": namespace, "creationTimestamp": "2020-01-01"}
    with pytest.raises(StatusError) as caught:
        check_convertible(_DEFINITIONS[kind], {"metadata": metadata})
    assert caught.value.code == 500
    assert caught.value.message.startswith(
        f"failed to convert new object ({place}; {shown}) to proper version: "
        f'unable to convert unstructured object to {shown}: parsing time "2020-01-01"'
    )


def test_other_documents_convert() -> None:
    check_convertible(_DEFINITIONS["ConfigMap"], {"metadata": {"name": "a"}, "data": {"a": "b"}})
