"""The schemas: taken from a package, kept small, parsed on demand."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kindling.apiserver.kinds.schemas import data_file, definitions
from kindling.apiserver.kinds.schemas.builtin import BuiltinSchemas, builtin_schemas
from kindling.apiserver.kinds.schemas.data_file import DataFile, SchemasMissing
from kindling.apiserver.kinds.schemas.definitions import convert
from kubecore.json import JsonObject

SOURCE: dict[str, JsonObject] = {
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
    return BuiltinSchemas(DataFile(definitions.build(SOURCE)))


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
    monkeypatch.setattr(data_file, "KUBERNETES_RELEASE", "9.99")
    with pytest.raises(SchemasMissing, match="another release"):
        DataFile(content)


def test_writing_makes_a_file_that_can_be_read_and_leaves_no_partial_one(tmp_path: Path) -> None:
    target = definitions.write(tmp_path / "definitions.bin")
    assert [entry.name for entry in tmp_path.iterdir()] == ["definitions.bin"]
    assert "io.k8s.api.core.v1.Pod" in BuiltinSchemas(DataFile.open(target))


def test_many_writers_at_once_leave_one_whole_file(tmp_path: Path) -> None:
    target = tmp_path / "definitions.bin"
    source = json.dumps({"$defs": SOURCE}).encode()
    together = threading.Barrier(8)

    def write(_: int) -> bool:
        together.wait()
        for _ in range(20):
            definitions.write(target, source=source)
        return "io.k8s.api.core.v1.Thing" in DataFile.open(target)

    with ThreadPoolExecutor(8) as writers:
        assert all(writers.map(write, range(8)))
    assert [entry.name for entry in tmp_path.iterdir()] == ["definitions.bin"]


def test_merge_keys_and_list_types_of_real_kinds_are_there() -> None:
    containers = builtin_schemas().kind("", "v1", "Pod").properties["spec"].properties["containers"]
    assert containers.list_type == "map"
    assert containers.list_map_keys == ("name",)
    assert containers.patch_merge_key == "name"
    assert containers.patch_strategy == ("merge",)


def test_the_file_is_read_in_a_moment() -> None:
    builtin_schemas()
    started = time.process_time()
    BuiltinSchemas(DataFile.open()).kind("apps", "v1", "Deployment")
    assert time.process_time() - started < 0.5


@pytest.mark.parametrize("node", [None, 3, "text", [1, {"type": ["string", "null"]}]])
def test_conversion_leaves_values_that_are_no_schemas(node: Any) -> None:
    converted = convert(node, descriptions=True)
    assert converted == ([1, {"type": "string"}] if isinstance(node, list) else node)


def test_a_wheel_of_the_package_is_as_good_as_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel = tmp_path / "kubernetes_validate.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        folder = f"kubernetes_validate/kubernetes-json-schema/v{data_file.KUBERNETES_RELEASE}.0-local"
        archive.writestr(f"{folder}/_definitions.json", json.dumps({"$defs": SOURCE}))
    target = tmp_path / "definitions.bin"
    written = definitions.write(target, source=definitions.wheel_definitions(wheel))
    assert "io.k8s.api.core.v1.Thing" in BuiltinSchemas(DataFile.open(written))
    monkeypatch.setattr(definitions, "write", lambda *_, **__: target)
    assert definitions.main(["--wheel", str(wheel)]) == 0
    assert capsys.readouterr().out.strip() == str(target)


def test_a_wheel_that_is_none_is_refused_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken.whl"
    broken.write_bytes(b"no zip")
    assert definitions.main(["--wheel", str(broken)]) == 1
    assert "cannot be made" in capsys.readouterr().err


def test_unstable_versions_are_left_out_and_nothing_refers_to_them() -> None:
    everything = builtin_schemas()
    assert not [name for name in everything if "v1alpha1" in name or "v1beta1" in name]
    assert set(everything.closure(tuple(everything))) == set(everything)


@pytest.mark.parametrize("content", [b"", b"no header", b'{"format": 1}\nrest'])
def test_a_file_that_is_none_of_ours_is_refused(tmp_path: Path, content: bytes) -> None:
    target = tmp_path / "definitions.bin"
    target.write_bytes(content)
    with pytest.raises(SchemasMissing):
        DataFile.open(target)


def test_the_file_can_be_made_where_only_the_build_requirements_are_installed() -> None:
    program = (
        "import sys\n"
        "import kindling.apiserver.kinds.schemas.definitions\n"
        "packages = {name.partition('.')[0] for name in sys.modules}\n"
        "print(*packages & {'aiohttp', 'cryptography', 'google', 'joserfc', 're2', 'yaml'})\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
