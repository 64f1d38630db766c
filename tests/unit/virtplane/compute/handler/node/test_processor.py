"""What guests can have of a node's processor, from libvirt's answers to the labels of the node."""

from __future__ import annotations

import pytest

from virtplane.compute.handler.node import processor
from virtplane.compute.handler.node.processor import Processor

DOMAIN = """
<domainCapabilities>
  <arch>x86_64</arch>
  <cpu>
    <mode name='host-passthrough' supported='no'/>
    <mode name='host-model' supported='yes'>
      <model fallback='forbid'>EPYC</model>
      <vendor>AMD</vendor>
      <feature policy='require' name='svme-addr-chk'/>
      <feature policy='require' name='erms'/>
      <feature policy='disable' name='vme'/>
    </mode>
    <mode name='custom' supported='yes'>
      <model usable='yes' vendor='Intel'>Westmere</model>
      <model usable='yes' vendor='unknown'>qemu64</model>
      <model usable='unknown' vendor='Intel'>Broadwell</model>
      <model usable='no' vendor='Intel'>Skylake-Server</model>
    </mode>
  </cpu>
</domainCapabilities>
"""
EXPANDED = """
<cpu mode='custom' match='exact'>
  <model fallback='forbid'>EPYC</model>
  <feature policy='require' name='sse4.1'/>
  <feature policy='require' name='aes'/>
  <feature policy='disable' name='vme'/>
</cpu>
"""
HOST = """
<capabilities>
  <host><cpu><arch>x86_64</arch><counter name='tsc' frequency='2112000000' scaling='yes'/></cpu></host>
</capabilities>
"""


@pytest.fixture
def found() -> Processor:
    return processor.read(DOMAIN, EXPANDED, HOST)


def test_models_and_features_are_read(found: Processor) -> None:
    assert found == Processor(
        models=("Broadwell", "Skylake-Server", "Westmere", "qemu64"),
        usable_models=("Westmere", "qemu64"),
        host_model="EPYC",
        host_model_features=("erms", "svme-addr-chk"),
        vendor="AMD",
        features=("aes", "sse4.1"),
        tsc_hertz=2112000000,
        tsc_scalable=True,
    )


def test_the_nodes_own_model_is_handed_back_to_libvirt_as_a_domains() -> None:
    own = processor.host_cpu(DOMAIN)
    assert own.startswith("<cpu>")
    assert "EPYC" in own and "svme-addr-chk" in own and "Westmere" not in own


def test_without_a_host_model_only_models_by_name_are_left() -> None:
    text = DOMAIN.replace(
        "<mode name='host-model' supported='yes'>", "<mode name='host-model' supported='no'>"
    )
    assert processor.host_cpu(text) == ""
    found = processor.read(text)
    assert (found.host_model, found.vendor, found.features, found.tsc_hertz) == ("", "", (), None)
    assert found.usable_models == ("Westmere", "qemu64")


@pytest.mark.feature("NOD-11", "NOD-20")
def test_labels_name_what_guests_can_ask_for_without_obsolete_models(found: Processor) -> None:
    assert processor.labels(found, None) == {
        "cpu-model.node.kubevirt.io/Westmere": "true",
        "cpu-model-migration.node.kubevirt.io/Westmere": "true",
        "cpu-model-migration.node.kubevirt.io/Broadwell": "true",
        "cpu-model-migration.node.kubevirt.io/Skylake-Server": "true",
        "cpu-feature.node.kubevirt.io/aes": "true",
        "cpu-feature.node.kubevirt.io/sse4.1": "true",
        "host-model-cpu.node.kubevirt.io/EPYC": "true",
        "host-model-required-features.node.kubevirt.io/erms": "true",
        "host-model-required-features.node.kubevirt.io/svme-addr-chk": "true",
        "cpu-vendor.node.kubevirt.io/AMD": "true",
        "cpu-timer.node.kubevirt.io/tsc-frequency": "2112000000",
        "cpu-timer.node.kubevirt.io/tsc-scalable": "true",
    }


def test_a_configured_list_takes_the_place_of_the_built_in_one(found: Processor) -> None:
    labels = processor.labels(found, {"Westmere": True, "EPYC": True, "Broadwell": False})
    assert "cpu-model.node.kubevirt.io/Westmere" not in labels
    assert labels["cpu-model.node.kubevirt.io/qemu64"] == "true"
    assert labels["cpu-model-migration.node.kubevirt.io/Broadwell"] == "true"
    assert labels["node-labeller.kubevirt.io/obsolete-host-model"] == "true"


def test_a_node_that_nothing_is_known_of_gets_no_labels() -> None:
    assert processor.labels(Processor(), None) == {}


@pytest.mark.parametrize("model", ["486", "Conroe", "qemu64-v1", "Opteron_G2"])
@pytest.mark.feature("NOD-11")
def test_the_oldest_models_are_obsolete(model: str) -> None:
    assert processor.is_obsolete(model, None)
    assert not processor.is_obsolete("Penryn", None)
