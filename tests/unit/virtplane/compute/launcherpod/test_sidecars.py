"""Hook sidecars in a launcher pod."""

from __future__ import annotations

import pytest
from tests.unit.virtplane.compute.launcherpod.rendered_pods import instance, rendered, settings

from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from virtplane.api.config import ClusterConfig
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.launcherpod.inputs import Images, RenderInputs
from virtplane.compute.launcherpod.render import render_launcher_pod


def with_sidecars(annotation: str) -> tuple[JsonObject, ClusterConfig]:
    gate = settings(developerConfiguration={"featureGates": ["Sidecar"]})
    return instance(metadata={"annotations": {"hooks.kubevirt.io/hookSidecars": annotation}}), gate


@pytest.mark.parametrize("image", ['"image": "launcher:2", ', '"image": "launcher@sha256:0", ', ""])
def test_users_run_no_commands_in_the_launchers_own_image(image: str) -> None:
    vmi, config = with_sidecars(f'[{{{image}"command": ["/bin/sh", "-c", "cat /etc/os-release"]}}]')
    images = Images(launcher="launcher:1", sidecar="launcher:1")
    with pytest.raises(ValueError, match="launcher's own image"):
        render_launcher_pod(RenderInputs(decode(VirtualMachineInstance, vmi), config, images))


def test_who_names_no_image_is_told_where_the_installation_would() -> None:
    vmi, config = with_sidecars('[{"args": ["--version", "v1alpha2"]}]')
    images = Images(launcher="launcher:1", sidecar="launcher:1")
    with pytest.raises(
        ValueError, match=r"names no image, and virt-operator's variable SIDECAR_SHIM_IMAGE none"
    ):
        render_launcher_pod(RenderInputs(decode(VirtualMachineInstance, vmi), config, images))


def test_the_installations_sidecar_image_takes_arguments_of_users() -> None:
    vmi, config = with_sidecars('[{"args": ["--version", "v1alpha2"]}]')
    images = Images(launcher="launcher:1", sidecar="mirror.test/sidecar-shim:1")
    pod = render_launcher_pod(RenderInputs(decode(VirtualMachineInstance, vmi), config, images))
    hook = next(item for item in pod["spec"]["containers"] if item["name"] == "hook-sidecar-0")
    assert (hook["image"], hook["args"]) == ("mirror.test/sidecar-shim:1", ["--version", "v1alpha2"])


def test_a_sidecar_that_names_neither_image_nor_command_gets_the_installations_image() -> None:
    vmi, config = with_sidecars(
        '[{"configMap": {"name": "s", "key": "a.sh", "hookPath": "/usr/bin/onDefineDomain"}}]'
    )
    images = Images(launcher="launcher:1", sidecar="launcher:1")
    pod = render_launcher_pod(RenderInputs(decode(VirtualMachineInstance, vmi), config, images))
    hook = next(item for item in pod["spec"]["containers"] if item["name"] == "hook-sidecar-0")
    assert (hook["image"], "command" in hook, "args" in hook) == ("launcher:1", False, False)


def test_a_sidecar_of_another_image_is_part_of_the_pod() -> None:
    pod = rendered(*with_sidecars('[{"image": "hook:1"}]'))
    assert [item["image"] for item in pod["spec"]["containers"] if "hook" in item["name"]] == ["hook:1"]


@pytest.mark.parametrize("annotation", ['["hook:1"]', '{"image": "hook:1"}', "1", "[", "null"])
def test_an_annotation_that_lists_no_sidecars_is_told(annotation: str) -> None:
    with pytest.raises(ValueError, match=r"not a JSON list of sidecars|JSON|EOF|unexpected"):
        rendered(*with_sidecars(annotation))


def test_with_the_gate_sidecars_of_plugins_have_a_volume_for_their_sockets() -> None:
    gate = settings(developerConfiguration={"featureGates": ["Plugins"]})
    images = Images(launcher="launcher:1", sidecar="launcher:1")
    vmi = decode(VirtualMachineInstance, instance())
    pod = render_launcher_pod(RenderInputs(vmi, gate, images))
    assert {"name": "kubevirt-plugin-sockets", "emptyDir": {}} in pod["spec"]["volumes"]
    mount = {"name": "kubevirt-plugin-sockets", "mountPath": "/var/run/kubevirt-plugin"}
    assert mount in pod["spec"]["containers"][0]["volumeMounts"]
    without = render_launcher_pod(RenderInputs(vmi, settings(), images))
    assert "kubevirt-plugin-sockets" not in str(without)
