"""What virt-handler tells of itself and its node."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from kubecore.runtime.metrics import exposition
from virtplane import KUBEVIRT_VERSION
from virtplane.compute.handler.node import capabilities
from virtplane.compute.handler.node.metrics import NAMES, NodeMetrics

_FOUND = """<qemuCaps>
<machine type='kvm' name='pc-i440fx-1.7' hotplugCpus='yes' maxCpus='255' deprecated='yes'/>
<machine type='kvm' name='pc-q35-7.2' alias='q35' hotplugCpus='yes' maxCpus='288'/>
<machine type='kvm' name='isapc' maxCpus='1' deprecated='no'/>
</qemuCaps>"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of what libvirt has found out."""
    copy = capabilities.location(tmp_path) / "qemu/capabilities"
    copy.mkdir(parents=True)
    (copy / "x86_64.xml").write_text(_FOUND)
    return tmp_path


def test_machine_types_that_will_go_away_are_told_by_node(folder: Path) -> None:
    assert capabilities.machine_types(folder) == ["isapc", "pc-i440fx-1.7", "pc-q35-7.2", "q35"]
    metrics = NodeMetrics("node", capabilities.deprecated_machine_types(folder))
    found = {metric.name: metric.samples for metric in metrics.collect()}
    assert tuple(found) == NAMES
    [machine] = found["kubevirt_node_deprecated_machine_types"]
    assert (machine.labels, machine.value) == ({"machine_type": "pc-i440fx-1.7", "node": "node"}, 1)


def test_virt_handler_tells_its_version() -> None:
    registry = CollectorRegistry(auto_describe=True)
    registry.register(NodeMetrics("node", ()))
    text = exposition(registry).decode()
    assert f'kubeversion="{KUBEVIRT_VERSION}"}} 1.0' in text
    assert 'kubevirt_info{goversion="python3.' in text
