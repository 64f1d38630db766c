"""Bodies of typed clients in protobuf."""

from __future__ import annotations

from importlib import resources

import orjson
import pytest

from kindling.apiserver import kinds
from kindling.apiserver.kinds import protobuf
from kindling.apiserver.kinds.schemas import builtin_schemas
from kubecore import errors
from kubecore.json import JsonObject


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


@pytest.mark.parametrize("kind", [("kubevirt.io/v1", "VirtualMachine"), ("coordination.k8s.io/v1", "Lease")])
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
    lines = orjson.loads(resources.files(kinds).joinpath("protobuf_numbers.json").read_bytes())
    table = {name: dict(entry.split("=") for entry in text.split()) for name, text in lines.items()}
    assert len(table) > 200
    for name, fields in table.items():
        assert len(set(fields.values())) == len(fields), name
        unfolded = {field for field in fields if field.startswith("*")}
        assert {f"{name.rpartition('.')[0]}.{field[1:]}" for field in unfolded} <= set(table)
        if name in schemas:  # Others have no definition: their fields stand in that of another object.
            assert set(fields) - unfolded <= set(schemas.schema(name).properties), name
