"""Applied documents that become no object of their kind."""

from __future__ import annotations

import pytest

from kindling.apiserver.kinds.served import builtin_definitions
from kindling.apiserver.registry.patches import check_convertible
from kubecore.errors import StatusError
from kubecore.patch.field_types import FieldType, TypedError

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


def _containers(kind: str) -> FieldType:
    whole = FieldType(_DEFINITIONS[kind].schema, whole_object=True)
    return whole.child("spec")[0].child("containers")[0]


def test_an_element_without_its_required_key_has_the_empty_one() -> None:
    assert _containers("Pod").element_key({"image": "a"}) == 'k:{"name":""}'


def test_an_element_without_a_key_that_it_need_not_have_is_no_element() -> None:
    secrets = FieldType(_DEFINITIONS["ServiceAccount"].schema, whole_object=True).child("secrets")[0]
    with pytest.raises(TypedError, match="omits all key fields"):
        secrets.element_key({"namespace": "n"})
