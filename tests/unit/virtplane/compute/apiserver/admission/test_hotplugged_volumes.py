"""What components may change of a running instance's volumes: hotplugged ones, and media of drives."""

from __future__ import annotations

import pytest

from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from virtplane.api.config import ClusterConfig
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.apiserver.admission.rules import hotplug

_CONFIG = ClusterConfig({"spec": {"configuration": {}}})


def _vmi(device: str, claim: str | None, root: str = "r") -> VirtualMachineInstance:
    disks = [{"name": "root", "disk": {}}, {"name": "more", device: {"bus": "scsi"}}]
    volumes: list[JsonObject] = [{"name": "root", "persistentVolumeClaim": {"claimName": root}}]
    entries: list[JsonObject] = [{"name": "root", "target": "vda"}]
    if claim is not None:
        more = {"name": "more", "persistentVolumeClaim": {"claimName": claim, "hotpluggable": True}}
        volumes.append(more)
        entries.append({"name": "more", "target": "sda", "hotplugVolume": {}})
    spec = {"domain": {"devices": {"disks": disks}}, "volumes": volumes}
    return decode(VirtualMachineInstance, {"spec": spec, "status": {"volumeStatus": entries}})


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        pytest.param(_vmi("cdrom", "a"), _vmi("cdrom", "b"), [], id="another medium"),
        pytest.param(_vmi("cdrom", None), _vmi("cdrom", "a"), [], id="a medium"),
        pytest.param(_vmi("cdrom", "a"), _vmi("cdrom", None), [], id="no medium"),
        pytest.param(
            _vmi("disk", "a"), _vmi("disk", "b"), ["hotplug volume more, changed"], id="another disk"
        ),
        pytest.param(
            _vmi("disk", "a"),
            _vmi("disk", "a", "s"),
            ["permanent volume root, changed"],
            id="a permanent one",
        ),
    ],
)
def test_media_may_be_changed_and_disks_may_not(
    before: VirtualMachineInstance, after: VirtualMachineInstance, said: list[str]
) -> None:
    assert [cause.message for cause in hotplug.storage(after, before, _CONFIG)] == said
