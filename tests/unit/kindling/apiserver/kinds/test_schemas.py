"""The schemas: taken from a package, kept small, parsed on demand."""

from __future__ import annotations

import json
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from kindling.apiserver.kinds import definitions, schemas
from kindling.apiserver.kinds.definitions import SchemasMissing, convert
from kindling.apiserver.kinds.schemas import BuiltinSchemas, builtin_schemas

SOURCE = {
    "io.k8s.api.core.v1.Thing": {
        "description": "A thing.",
        "type": ["object", "null"],
        "properties": {
            "apiVersion": {"type": ["string", "null"], "enum": ["v1"]},
            "description": {"type": ["string", "null"], "description": "What it is."},
            "amount": {"$ref": "#/$defs/io.k8s.apimachinery.pkg.api.resource.Quantity"},
            "mode": {"type": "string", "enum": ["A", "B"]},
        },
        "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "Thing"}],
    },
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {
        "description": "An amount.",
        "oneOf": [{"type": ["string", "null"]}, {"type": ["number", "null"]}],
    },
    "io.k8s.api.core.v1.Unrelated": {"type": ["object", "null"]},
}


@pytest.fixture
def small() -> BuiltinSchemas:
    return BuiltinSchemas(definitions.build(SOURCE))


def test_nullable_types_become_plain_ones(small: BuiltinSchemas) -> None:
    thing = small.kind("", "v1", "Thing")
    assert thing.type == "object"
    assert thing.properties["mode"].type == "string"


def test_pins_of_version_and_kind_go_but_other_enumerations_stay(small: BuiltinSchemas) -> None:
    thing = small.kind("", "v1", "Thing")
    assert "enum" not in thing.properties["apiVersion"].raw
    assert thing.properties["mode"].raw["enum"] == ["A", "B"]


def test_schemas_in_use_carry_no_descriptions_but_published_ones_do(small: BuiltinSchemas) -> None:
    name = small.name_of("", "v1", "Thing")
    assert "description" not in small.raw(name)
    assert small.published(name)[name]["description"] == "A thing."


def test_a_field_called_description_is_a_field_like_any_other(small: BuiltinSchemas) -> None:
    assert small.kind("", "v1", "Thing").properties["description"].type == "string"


def test_publishing_takes_what_is_referred_to_and_nothing_else(small: BuiltinSchemas) -> None:
    published = small.published(small.name_of("", "v1", "Thing"))
    assert set(published) == {
        "io.k8s.api.core.v1.Thing",
        "io.k8s.apimachinery.pkg.api.resource.Quantity",
    }
    assert len(published) == 2


def test_references_point_into_components(small: BuiltinSchemas) -> None:
    raw = small.described("io.k8s.api.core.v1.Thing")
    reference = raw["properties"]["amount"]["$ref"]
    assert reference == "#/components/schemas/io.k8s.apimachinery.pkg.api.resource.Quantity"


def test_a_view_knows_the_name_of_its_definition(small: BuiltinSchemas) -> None:
    thing = small.kind("", "v1", "Thing")
    assert thing.definition == "io.k8s.api.core.v1.Thing"
    assert thing.properties["amount"].definition == "io.k8s.apimachinery.pkg.api.resource.Quantity"


def test_unknown_kinds_are_key_errors(small: BuiltinSchemas) -> None:
    with pytest.raises(KeyError):
        small.kind("", "v1", "Nothing")


def test_data_of_another_release_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    content = definitions.build(SOURCE)
    monkeypatch.setattr(schemas, "KUBERNETES_RELEASE", "9.99")
    with pytest.raises(SchemasMissing, match="another release"):
        BuiltinSchemas(content)


def test_writing_makes_a_file_that_can_be_read_and_leaves_no_partial_one(tmp_path: Path) -> None:
    target = definitions.write(tmp_path / "definitions.bin")
    assert [entry.name for entry in tmp_path.iterdir()] == ["definitions.bin"]
    assert "io.k8s.api.core.v1.Pod" in BuiltinSchemas(target.read_bytes())


def test_merge_keys_and_list_types_of_real_kinds_are_there() -> None:
    containers = builtin_schemas().kind("", "v1", "Pod").properties["spec"].properties["containers"]
    assert containers.list_type == "map"
    assert containers.list_map_keys == ("name",)
    assert containers.patch_merge_key == "name"
    assert containers.patch_strategy == ("merge",)


def test_the_file_is_read_in_a_moment() -> None:
    content = definitions.DATA_FILE.read_bytes()
    started = time.perf_counter()
    BuiltinSchemas(content).kind("apps", "v1", "Deployment")
    assert time.perf_counter() - started < 0.5


@pytest.mark.parametrize("node", [None, 3, "text", [1, {"type": ["string", "null"]}]])
def test_conversion_leaves_values_that_are_no_schemas(node: Any) -> None:
    converted = convert(node, descriptions=True)
    assert converted == ([1, {"type": "string"}] if isinstance(node, list) else node)


def test_a_wheel_of_the_package_is_as_good_as_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel = tmp_path / "kubernetes_validate.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        folder = f"kubernetes_validate/kubernetes-json-schema/v{definitions.KUBERNETES_RELEASE}.0-local"
        archive.writestr(f"{folder}/_definitions.json", json.dumps({"$defs": SOURCE}))
    target = tmp_path / "definitions.bin"
    written = definitions.write(target, source=definitions.wheel_definitions(wheel))
    assert "io.k8s.api.core.v1.Thing" in BuiltinSchemas(written.read_bytes())
    monkeypatch.setattr(definitions, "write", lambda *_, **__: target)
    assert definitions.main(["--wheel", str(wheel)]) == 0
    assert capsys.readouterr().out.strip() == str(target)


def test_a_wheel_that_is_none_is_refused_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken.whl"
    broken.write_bytes(b"no zip")
    assert definitions.main(["--wheel", str(broken)]) == 1
    assert "cannot be made" in capsys.readouterr().err
