"""What Ignition reads in a guest, from an annotation of the instance."""

from __future__ import annotations

from pathlib import Path

import pytest
from lxml import etree

from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.domain import document
from virtplane.compute.domain.context import DomainContext

_SCHEMA = Path("/usr/share/libvirt/schemas/domain.rng")
_TEXT = '{"ignition": {"version": "3.3.0"}, "storage": {"<&>": [1, 2]}}\n'


def rendered(text: str | None) -> etree._Element:
    annotations = {"kubevirt.io/ignitiondata": text} if text is not None else {}
    vmi = decode(
        VirtualMachineInstance,
        {
            "metadata": {"name": "vm", "namespace": "ns", "uid": "u", "annotations": annotations},
            "spec": {"domain": {"memory": {"guest": "1Gi"}, "devices": {}}},
        },
    )
    return etree.fromstring(document.render(vmi, DomainContext(emulation=True)))


def test_the_guest_finds_the_annotation_where_ignition_looks() -> None:
    root = rendered(_TEXT)
    (entry,) = root.findall("sysinfo[@type='fwcfg']/entry")
    assert (entry.get("name"), entry.text) == ("opt/com.coreos/config", _TEXT)
    assert len(root.findall("sysinfo[@type='smbios']")) == 1


@pytest.mark.parametrize("text", [None, "", "#cloud-config"])
def test_other_guests_have_nothing_for_ignition(text: str | None) -> None:
    assert rendered(text).findall("sysinfo[@type='fwcfg']") == []


def test_what_no_program_takes_as_an_argument_is_refused() -> None:
    assert len(rendered("ignition" + "x" * 100_000).findtext("sysinfo[@type='fwcfg']/entry") or "") > 100_000
    for text in ("ignition" + "x" * 131_072, "ignition" + "," * 70_000):
        with pytest.raises(ValueError, match="longer than 122880 bytes"):
            rendered(text)


@pytest.mark.skipif(not _SCHEMA.exists(), reason="libvirt's schemas are not installed")
def test_libvirt_knows_these_elements() -> None:
    schema = etree.RelaxNG(etree.parse(_SCHEMA))
    assert schema.validate(rendered(_TEXT)), schema.error_log
