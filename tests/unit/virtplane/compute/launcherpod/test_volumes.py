"""Volumes of an instance as its launcher pod has them."""

from __future__ import annotations

import pytest
from tests.unit.virtplane.compute.launcherpod.rendered_pods import (
    compute,
    instance,
    mounts,
    rendered,
    settings,
    volume,
)


def test_image_volumes_and_containers_are_pulled_under_the_same_policy() -> None:
    kernel = {"image": "kernel:latest", "imagePullPolicy": "Never"}
    vmi = instance(domain={"firmware": {"kernelBoot": {"container": kernel}}})
    disk = {"image": "disk:latest", "imagePullPolicy": "Always"}
    vmi["spec"]["volumes"] = [{"name": "root", "containerDisk": disk}]
    pod = rendered(vmi, settings(imagePullPolicy="Never"))
    policies = {item["name"]: item.get("imagePullPolicy") for item in pod["spec"]["initContainers"]}
    assert (policies["volumeroot"], policies["volumekernel-boot-volume"]) == ("Always", "Never")
    assert volume(pod, "root")["image"] == {"reference": "disk:latest", "pullPolicy": "Always"}
    assert volume(pod, "kernel-boot-volume")["image"]["pullPolicy"] == "Never"
    assert volume(pod, "virt-bin-share-dir")["image"]["pullPolicy"] == "Never"
    assert compute(pod)["imagePullPolicy"] == "Never"


@pytest.mark.feature("VMC-36")
def test_a_claim_with_files_is_mounted_and_a_block_device_is_passed() -> None:
    vmi = instance(volumes=[{"name": "root", "persistentVolumeClaim": {"claimName": "c"}}])
    pod = rendered(vmi)
    assert volume(pod, "root")["persistentVolumeClaim"] == {"claimName": "c"}
    assert mounts(pod)["root"] == "/var/run/kubevirt-private/vmi-disks/root"
    block = rendered(vmi, claims={"c": {"spec": {"volumeMode": "Block"}}})
    assert compute(block)["volumeDevices"] == [{"name": "root", "devicePath": "/dev/root"}]
    assert "root" not in mounts(block)


def test_all_empty_disks_are_in_one_folder_that_is_mounted_once() -> None:
    disks = [{"name": name, "emptyDisk": {"capacity": "8Mi"}} for name in ("one", "two")]
    mounted = [each["mountPath"] for each in compute(rendered(instance(volumes=disks)))["volumeMounts"]]
    assert mounted.count("/var/run/libvirt/empty-disks") == 1
    assert len(mounted) == len(set(mounted))


@pytest.mark.feature("VMC-37")
def test_a_data_volume_is_the_claim_of_its_name() -> None:
    pod = rendered(instance(volumes=[{"name": "root", "dataVolume": {"name": "dv"}}]))
    assert volume(pod, "root")["persistentVolumeClaim"] == {"claimName": "dv"}


@pytest.mark.feature("VMC-39")
def test_a_container_disks_image_is_a_volume_of_the_pod() -> None:
    source = {"image": "reg.test/disk:1", "imagePullSecret": "pull"}
    pod = rendered(instance(volumes=[{"name": "root", "containerDisk": source}]))
    assert volume(pod, "root")["image"] == {"reference": "reg.test/disk:1"}
    assert {"name": "pull"} in pod["spec"]["imagePullSecrets"]


@pytest.mark.parametrize("image", ["launcher:1", "launcher", "launcher:2", "launcher@sha256:0"])
@pytest.mark.parametrize("use", ["disk", "kernel"])
def test_the_launchers_own_image_is_no_disk(image: str, use: str) -> None:
    disk = instance(volumes=[{"name": "root", "containerDisk": {"image": image, "path": "/usr/bin/env"}}])
    kernel = instance(domain={"firmware": {"kernelBoot": {"container": {"image": image}}}})
    with pytest.raises(ValueError, match="disks and sidecars may not use"):
        rendered(disk if use == "disk" else kernel)


@pytest.mark.feature("VMC-59", "VMC-60")
def test_the_secret_of_ssh_keys_is_mounted_for_cloud_init() -> None:
    source = {"secret": {"secretName": "keys"}}
    credential = {"sshPublicKey": {"propagationMethod": {"noCloud": {}}, "source": source}}
    pod = rendered(instance(accessCredentials=[credential]))
    assert volume(pod, "keys-access-cred")["secret"] == {"secretName": "keys"}
    assert mounts(pod)["keys-access-cred"] == "/var/run/kubevirt-private/secret/keys-access-cred"


def test_a_file_server_without_a_volume_of_the_pod_serves_a_folder_of_its_name() -> None:
    """Volumes that are plugged in later are not the launcher's, file systems that name them are."""
    later = {"name": "later", "persistentVolumeClaim": {"claimName": "c", "hotpluggable": True}}
    vmi = instance(domain={"devices": {"filesystems": [{"name": "later", "virtiofs": {}}]}}, volumes=[later])
    (server,) = [each for each in rendered(vmi)["spec"]["containers"] if each["name"] == "virtiofs-later"]
    assert "--shared-dir=/var/run/kubevirt-private/vmi-disks/later" in server["args"]


def test_file_servers_alone_have_the_profile_that_lets_them_confine_themselves() -> None:
    share = {"name": "files", "persistentVolumeClaim": {"claimName": "c"}}
    vmi = instance(domain={"devices": {"filesystems": [{"name": "files", "virtiofs": {}}]}}, volumes=[share])
    spec = rendered(vmi)["spec"]
    profiles = {
        each["name"]: each["securityContext"].get("seccompProfile")
        for each in [*spec["containers"], *spec.get("initContainers", [])]
    }
    wanted = {"type": "Localhost", "localhostProfile": "kubevirt/virtiofs.json"}
    assert profiles.pop("virtiofs-files") == wanted
    assert set(profiles.values()) == {None}


def test_an_ephemeral_claim_keeps_its_readonly_mark() -> None:
    claim = {"claimName": "data", "readOnly": True}
    pod = rendered(instance(volumes=[{"name": "data", "ephemeral": {"persistentVolumeClaim": claim}}]))
    assert volume(pod, "data")["persistentVolumeClaim"] == claim


@pytest.mark.parametrize(("wanted", "kind"), [("Disk", "Directory"), ("DiskOrCreate", "DirectoryOrCreate")])
def test_the_folder_of_a_host_disk_is_made_with_the_disk_only(wanted: str, kind: str) -> None:
    disk = {"path": "/data/disk.img", "type": wanted}
    pod = rendered(instance(volumes=[{"name": "data", "hostDisk": disk}]))
    assert volume(pod, "data")["hostPath"] == {"path": "/data", "type": kind}


def test_sysprep_needs_a_source() -> None:
    with pytest.raises(ValueError, match="Sysprep must have Secret or ConfigMap reference set"):
        rendered(instance(volumes=[{"name": "answers", "sysprep": {}}]))
