"""The table of fields: complete, without strangers, and equal to the documentation and the warnings."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from kubecore.json import JsonObject
from virtplane.api.cdi_crds import CDI
from virtplane.api.cdi_crds import DEFINITIONS as CDI_DEFINITIONS
from virtplane.api.fields.instance import INSTANCE
from virtplane.api.fields.instancetypes import INSTANCETYPE
from virtplane.api.fields.kinds import KINDS
from virtplane.api.fields.machine import MACHINE, POOL, PRESET, REPLICA_SET
from virtplane.api.fields.page import page
from virtplane.api.fields.state import State
from virtplane.api.fields.structs import KNOWN, around, entry_of, paths, struct_of
from virtplane.api.fields.warnings import unsupported_warnings
from virtplane.compute.apiserver.admission.review import WARNED, WEBHOOKS
from virtplane.storage.cdi.apiserver.reviews import REVIEWED as REVIEWED_BY_CDI
from virtplane.storage.cdi.apiserver.reviews import WARNED as WARNED_BY_CDI

ROOT = Path(__file__).parents[5]
_WRITTEN_BY_CONTROLLERS = {"VirtualMachineSnapshotContent"}


def test_every_kind_that_users_write_has_entries() -> None:
    written = {each.resource.kind for each in KNOWN}
    assert written == set(KINDS) | _WRITTEN_BY_CONTROLLERS


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_of_the_api_has_an_entry(kind: str) -> None:
    assert [path for path in paths(struct_of(kind)) if entry_of(KINDS[kind], path) is None] == []


@pytest.mark.parametrize("kind", KINDS)
def test_every_entry_is_of_a_field_of_the_api(kind: str) -> None:
    fields = list(paths(struct_of(kind)))
    known = {*fields, *(outer for path in fields for outer in around(path))}
    assert sorted(set(KINDS[kind]) - known) == []


@pytest.mark.parametrize("kind", KINDS)
def test_no_entry_hides_below_one_that_stands_for_everything_inside(kind: str) -> None:
    table = KINDS[kind]
    hidden = [path for path in table for outer in around(path) if outer in table and table[outer].whole]
    assert hidden == []


def test_the_page_is_made_of_the_table() -> None:
    text = (ROOT / "docs/fields.md").read_text()
    assert text == page(), "run: python -m virtplane.api.fields.page docs/fields.md"


def test_writers_of_every_kind_are_warned() -> None:
    assert set(WARNED) <= set(WEBHOOKS)
    # Their own operators review KubeVirt and HostPathProvisioner; all of the latter acts.
    of_cdi = {each.resource.kind for each in (CDI, *CDI_DEFINITIONS)}
    assert {*WARNED.values(), "KubeVirt", "HostPathProvisioner"} | of_cdi == set(KINDS)
    not_acting = {kind for kind in of_cdi for entry in KINDS[kind].values() if entry.state is not State.ACTS}
    assert {*WARNED_BY_CDI, *REVIEWED_BY_CDI} == not_acting
    assert {entry.state for entry in KINDS["HostPathProvisioner"].values()} == {State.ACTS}


def test_everything_that_has_no_effect_is_warned_of_and_nothing_else() -> None:
    for kind, table in KINDS.items():
        for path, field in table.items():
            found = unsupported_warnings(table, _with(path, {}))
            says = field.warning or "accepted, but has no effect yet"
            wanted = [f"spec.{path}: {says}".replace("[]", "[0]")]
            assert found == (wanted if field.state is State.WARNS else []), kind


def _with(path: str, value: object) -> JsonObject:
    """A spec in which only the field `path` is set."""
    for part in reversed(path.split(".")):
        name = part.removesuffix("[]")
        value = {name: [value] if part.endswith("[]") else value}
    assert isinstance(value, dict)
    return value


def test_warnings_name_the_path_as_users_wrote_it() -> None:
    devices = {"disks": [{"name": "a"}, {"name": "b", "changedBlockTracking": True}]}
    hyperv: JsonObject = {"tlbflush": {"direct": {}}}
    domain = {"devices": devices, "features": {"hyperv": hyperv}}
    assert unsupported_warnings(MACHINE, {"template": {"spec": {"domain": domain}}}) == [
        "spec.template.spec.domain.devices.disks[1].changedBlockTracking: accepted, but has no effect yet",
        "spec.template.spec.domain.features.hyperv.tlbflush.direct: accepted, but has no effect yet",
    ]


@pytest.mark.parametrize("value", [None, False, "", []])
def test_what_is_switched_off_or_empty_is_not_warned_of(value: object) -> None:
    devices = {"autoattachVSOCK": value, "gpus": value}
    assert unsupported_warnings(INSTANCE, {"domain": {"devices": devices}}) == []


def test_values_without_effect_are_named() -> None:
    assert unsupported_warnings(MACHINE, {"updateVolumesStrategy": "Replacement"}) == []
    assert unsupported_warnings(MACHINE, {"updateVolumesStrategy": "Migration"}) == [
        "spec.updateVolumesStrategy: the value Migration is accepted, but has no effect yet"
    ]


def test_memory_that_can_be_plugged_in_is_not_warned_of() -> None:
    spec = {"domain": {"memory": {"guest": "1Gi", "maxGuest": "4Gi"}}}
    assert unsupported_warnings(INSTANCE, spec, instance=True) == []
    assert unsupported_warnings(MACHINE, {"template": {"spec": spec}}) == []
    assert unsupported_warnings(INSTANCETYPE, {"memory": spec["domain"]["memory"]}) == []


def test_fields_of_a_pools_template_are_warned_of() -> None:
    machine: JsonObject = {"template": {"spec": {"domain": {"launchSecurity": {"snp": {}}}}}}
    pool = {"maxUnavailable": "20%", "autohealing": {}, "virtualMachineTemplate": {"spec": machine}}
    assert [text.split(":")[0] for text in unsupported_warnings(POOL, pool)] == [
        "spec.virtualMachineTemplate.spec.template.spec.domain.launchSecurity.snp",
    ]


def test_the_examples_use_nothing_that_has_no_effect() -> None:
    found = {}
    for path in sorted((ROOT / "examples").glob("*.yaml")):
        for each in yaml.safe_load_all(path.read_text()):
            if each["kind"] in KINDS:
                found[path.name] = unsupported_warnings(KINDS[each["kind"]], each["spec"])
    assert "demo-vm.yaml" in found
    assert {name: texts for name, texts in found.items() if texts} == {}


def test_a_tablet_by_itself_is_for_machines_only() -> None:
    spec: JsonObject = {"domain": {"devices": {"autoattachInputDevice": True}}}
    template = {"template": {"spec": spec}}
    assert unsupported_warnings(MACHINE, template) == []
    assert unsupported_warnings(POOL, {"virtualMachineTemplate": {"spec": template}}) == []
    for table, document in ((INSTANCE, spec), (REPLICA_SET, template), (PRESET, spec)):
        (warning,) = unsupported_warnings(table, document)
        assert warning.endswith("autoattachInputDevice: accepted, but has no effect yet")
