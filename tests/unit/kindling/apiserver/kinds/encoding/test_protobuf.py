"""Bodies of typed clients in protobuf."""

from __future__ import annotations

from importlib import resources

import orjson
import pytest

from kindling.apiserver.kinds import encoding
from kindling.apiserver.kinds.encoding import protobuf
from kindling.apiserver.kinds.schemas.builtin import builtin_schemas
from kindling.apiserver.kinds.served import builtin_definitions
from kubecore import errors
from kubecore.json import JsonObject
from kubecore.schema.model import Schema

CUSTOM = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition"


def message(*fields: tuple[int, int | bytes | str]) -> bytes:
    """A protobuf message of numbers (varints) and texts or nested messages."""
    encoded = b""
    for number, value in fields:
        if isinstance(value, int):
            encoded += varint(number << 3) + varint(value % (1 << 64))
        else:
            content = value.encode() if isinstance(value, str) else value
            encoded += varint(number << 3 | 2) + varint(len(content)) + content
    return encoded


def varint(number: int) -> bytes:
    encoded = b""
    while number >= 128:
        encoded += bytes([number & 127 | 128])
        number >>= 7
    return encoded + bytes([number])


def body(
    api_version: str, kind: str, *fields: tuple[int, int | bytes | str], content_type: str = ""
) -> bytes:
    envelope = message((1, message((1, api_version), (2, kind))), (2, message(*fields)), (4, content_type))
    return protobuf.MAGIC + envelope


def decode(api_version: str, kind: str, *fields: tuple[int, int | bytes | str]) -> JsonObject:
    return protobuf.decode(body(api_version, kind, *fields))


META = message((1, "x"), (2, ""), (7, 0), (8, b""), (11, message((1, "l"), (2, "v"))))


def test_a_config_map_has_its_metadata_and_data() -> None:
    found = decode(
        "v1", "ConfigMap", (1, META), (2, message((1, "a"), (2, "b"))), (3, message((1, "c"), (2, b"\1")))
    )

    assert (found["apiVersion"], found["kind"]) == ("v1", "ConfigMap")
    assert found["metadata"]["name"] == "x"
    assert found["metadata"]["labels"] == {"l": "v"}
    assert sorted(found["metadata"]) == ["labels", "name"]
    assert found["data"] == {"a": "b"}
    assert found["binaryData"] == {"c": "AQ=="}


def test_structs_that_stand_in_their_parent_in_json_are_unfolded() -> None:
    volume = message((1, "v"), (2, message((19, message((1, message((1, "cm"))), (3, 420))))))
    pod = decode("v1", "Pod", (1, META), (2, message((1, volume))))

    assert pod["spec"]["volumes"] == [{"name": "v", "configMap": {"name": "cm", "defaultMode": 420}}]


def test_quantities_times_and_ports_get_their_own_json_form() -> None:
    quota = decode("v1", "ResourceQuota", (2, message((1, message((1, "cpu"), (2, message((1, "2"))))))))
    port = message((1, "http"), (3, 80), (4, message((1, 1), (2, 0), (3, "web"))))
    numbered = message((3, 81), (4, message((1, 0), (2, 8080), (3, ""))))
    service = decode("v1", "Service", (2, message((1, port), (1, numbered))))
    born = decode("v1", "ConfigMap", (1, message((8, message((1, 1_700_000_000), (2, 0))))))

    assert quota["spec"]["hard"] == {"cpu": "2"}
    assert [item["targetPort"] for item in service["spec"]["ports"]] == ["web", 8080]
    assert born["metadata"]["creationTimestamp"] == "2023-11-14T22:13:20Z"


def test_lists_of_numbers_come_packed_or_one_by_one() -> None:
    def codes(*fields: tuple[int, int | bytes | str]) -> object:
        rule = message((1, "FailJob"), (2, message((2, "In"), *fields)))
        job = decode("batch/v1", "Job", (2, message((11, message((1, rule))))))
        return job["spec"]["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"]

    assert codes((3, 41), (3, 300)) == [41, 300]
    assert codes((3, varint(41) + varint(300))) == [41, 300]


def test_negative_numbers_are_whole() -> None:
    assert decode("scheduling.k8s.io/v1", "PriorityClass", (2, -5))["value"] == -5


def test_json_in_the_envelope_is_taken_as_it_is() -> None:
    envelope = message((1, b""), (2, b'{"kind":"ConfigMap"}'), (4, "application/json"))

    assert protobuf.decode(protobuf.MAGIC + envelope) == {"kind": "ConfigMap"}


def test_fields_beyond_the_table_are_left_out_only_when_they_say_nothing() -> None:
    empty = message((1, 0), (2, ""), (3, message((4, 0))))

    assert "status" not in decode("v1", "ConfigMap", (90, ""), (91, 0), (92, empty))
    with pytest.raises(errors.StatusError, match=r"field 90 of io\.k8s\.api\.core\.v1\.ConfigMap") as refused:
        decode("v1", "ConfigMap", (90, "something"))
    assert refused.value.code == 400


@pytest.mark.parametrize("kind", [("kubevirt.io/v1", "VirtualMachine"), ("v1", "WatchEvent")])
def test_kinds_without_numbers_are_an_unsupported_media_type(kind: tuple[str, str]) -> None:
    with pytest.raises(errors.StatusError) as refused:
        decode(*kind)

    assert refused.value.code == 415
    assert "application/vnd.kubernetes.protobuf" not in str(refused.value.message)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{}",
        body("v1", "ConfigMap")[:-3],
        body("v1", "ConfigMap", (1, 7)),
        body("v1", "ConfigMap", (1, message((1, b"\xff\xfe")))),
        body("v1", "ConfigMap", (1, message((8, message((1, 1 << 62)))))),
        protobuf.MAGIC + b"\x0b",
        protobuf.MAGIC + b"\x08\xff",
    ],
)
def test_bytes_that_are_no_such_message_are_a_bad_request(raw: bytes) -> None:
    with pytest.raises(errors.StatusError) as refused:
        protobuf.decode(raw)

    assert refused.value.code == 400


def test_the_table_agrees_with_the_published_schemas() -> None:
    schemas = builtin_schemas()
    lines = orjson.loads(resources.files(encoding).joinpath("protobuf_numbers.json").read_bytes())
    table = {name: dict(entry.split("=") for entry in text.split()) for name, text in lines.items()}
    assert len(table) > 200
    for name, fields in table.items():
        assert len(set(fields.values())) == len(fields), name
        unfolded = {field for field in fields if field.startswith("*")}
        assert {f"{name.rpartition('.')[0]}.{field[1:]}" for field in unfolded} <= set(table)
        if name in schemas:  # Others have no definition: their fields stand in that of another object.
            assert set(fields) - unfolded <= set(schemas.schema(name).properties), name


def _definitions_of(name: str, found: set[str]) -> None:
    """Collect `name` and all definitions with fields which it refers to."""
    if name in found:
        return
    found.add(name)
    pending = list(builtin_schemas().schema(name).properties.values())
    while pending:
        schema = pending.pop()
        if schema.definition and schema.definition != name:
            _definitions_of(schema.definition, found)
        pending.extend(
            nested for nested in (schema.items, schema.additional_properties) if isinstance(nested, Schema)
        )


def test_every_field_of_every_served_kind_has_a_number() -> None:
    schemas = builtin_schemas()
    lines = orjson.loads(resources.files(encoding).joinpath("protobuf_numbers.json").read_bytes())
    table = {name: {entry.partition("=")[0] for entry in text.split()} for name, text in lines.items()}
    reached: set[str] = {CUSTOM}
    for definition in builtin_definitions():
        resource = definition.resource
        _definitions_of(schemas.name_of(resource.group, resource.version, resource.kind), reached)

    def fields_of(name: str) -> set[str]:
        prefix = name.rpartition(".")[0]
        own = table.get(name, set())
        unfolded = [fields_of(f"{prefix}.{field[1:]}") for field in own if field.startswith("*")]
        return own.union(*unfolded)

    missing = {
        f"{name}.{field}"
        for name in reached
        for field in schemas.schema(name).properties
        if field not in ("apiVersion", "kind") and field not in fields_of(name)
    }

    # An alpha field whose number was given to something else since.
    assert missing == {"io.k8s.api.core.v1.NodeAllocatableResourceClaimStatus.resources"}


def test_an_object_that_was_read_can_be_sent_back_with_its_managed_fields() -> None:
    entry = message(
        (1, "kubectl"),
        (2, "Update"),
        (3, "v1"),
        (4, message((1, 1_700_000_000), (2, 0))),
        (6, "FieldsV1"),
        (7, message((1, '{"f:data":{}}'))),
        (8, ""),
    )
    found = decode("v1", "ConfigMap", (1, message((1, "x"), (17, entry))))

    assert found["metadata"]["managedFields"] == [
        {
            "manager": "kubectl",
            "operation": "Update",
            "apiVersion": "v1",
            "time": "2023-11-14T22:13:20Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {}},
        }
    ]


def test_custom_resource_definitions_carry_schemas_booleans_and_json() -> None:
    names = message((1, "widgets"), (4, "Widget"))
    size = message((5, "integer"), (8, message((1, "3"))), (17, 0))
    items = message((5, "array"), (24, message((1, message((2, ""), (5, "string"), (14, 0))))))
    free = message((5, "object"), (30, message((1, 1))))
    typed = message((5, "object"), (30, message((1, 1), (2, message((5, "string"))))))
    properties = [
        (29, message((1, name), (2, schema)))
        for name, schema in (("size", size), ("list", items), ("free", free), ("typed", typed))
    ]
    root = message((5, "object"), (38, 1), *properties)
    version = message((1, "v1"), (2, 1), (3, 0), (4, message((1, root))))

    spec = message((1, "g"), (3, names), (7, version))
    found = decode("apiextensions.k8s.io/v1", "CustomResourceDefinition", (2, spec))

    assert found["spec"]["names"] == {"plural": "widgets", "kind": "Widget"}
    assert found["spec"]["versions"] == [
        {
            "name": "v1",
            "served": True,
            "storage": False,
            "schema": {
                "openAPIV3Schema": {
                    "type": "object",
                    "x-kubernetes-preserve-unknown-fields": True,
                    "properties": {
                        "size": {"type": "integer", "default": 3, "minItems": 0},
                        "list": {"type": "array", "items": {"type": "string", "minLength": 0}},
                        "free": {"type": "object", "additionalProperties": True},
                        "typed": {"type": "object", "additionalProperties": {"type": "string"}},
                    },
                }
            },
        }
    ]
