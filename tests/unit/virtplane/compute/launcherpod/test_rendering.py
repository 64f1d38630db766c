"""The launcher pod of an instance, field by field as users see it."""

from __future__ import annotations

import pytest
from tests.unit.virtplane.compute.launcherpod.rendered_pods import (
    IMAGES,
    compute,
    instance,
    rendered,
    settings,
)

from kindling.apiserver.admission.pod_security.levels import Policy, describe
from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.launcherpod.attachment import render_attachment_pod
from virtplane.compute.launcherpod.inputs import RenderInputs


@pytest.mark.feature("INS-44", "VML-69")
def test_the_pod_is_named_and_labelled_after_its_machine() -> None:
    pod = rendered(instance())
    name = pod["metadata"]["name"]
    assert pod["metadata"]["generateName"] == "virt-launcher-vm-"
    assert name.startswith("virt-launcher-vm-") and len(name) == len("virt-launcher-vm-") + 5
    labels = pod["metadata"]["labels"]
    assert (labels["kubevirt.io"], labels["kubevirt.io/created-by"]) == ("virt-launcher", "u1")
    assert labels["vm.kubevirt.io/name"] == "vm"
    assert pod["metadata"]["annotations"]["kubevirt.io/domain"] == "vm"
    assert pod["metadata"]["ownerReferences"][0]["kind"] == "VirtualMachineInstance"
    # The guest's container and that of its console's log: 2/2.
    sidecars = [item["name"] for item in pod["spec"]["initContainers"] if item.get("restartPolicy")]
    assert [item["name"] for item in pod["spec"]["containers"]] + sidecars == ["compute", "guest-console-log"]


def test_the_name_of_a_launcher_is_that_of_its_instance_alone() -> None:
    def name(instance_name: str, uid: str) -> str:
        vmi = instance()
        vmi["metadata"] |= {"name": instance_name, "uid": uid}
        return str(rendered(vmi)["metadata"]["name"])

    assert name("vm", "u1") == name("vm", "u1")
    assert name("vm", "u1") != name("vm", "u2")
    long = "a" * 100
    assert name(long, "u1") != name(long, "u2")
    assert len(name(long, "u1")) == 63


@pytest.mark.feature("INS-44")
def test_one_container_holds_launcher_and_guest_and_asks_for_kvm() -> None:
    container = compute(rendered(instance()))
    assert container["command"] == ["virt-launcher"]
    limits = container["resources"]["limits"]
    assert limits["devices.kubevirt.io/kvm"] == limits["devices.kubevirt.io/tun"] == "1"
    emulated = compute(rendered(instance(), settings(developerConfiguration={"useEmulation": True})))
    assert "devices.kubevirt.io/kvm" not in emulated["resources"]["limits"]


@pytest.mark.feature("INS-46")
def test_the_pod_keeps_the_restricted_security_standard() -> None:
    profile = {"virtualMachineInstanceProfile": {"customProfile": {"runtimeDefaultProfile": True}}}
    volumes = [
        {"name": "root", "containerDisk": {"image": "i"}},
        {"name": "e", "emptyDisk": {"capacity": "1Gi"}},
    ]
    pod = rendered(instance(volumes=volumes), settings(seccompConfiguration=profile))
    assert describe(Policy("restricted").violations(pod, pod["spec"])) == ""
    context = compute(pod)["securityContext"]
    assert (context["runAsUser"], context["runAsNonRoot"]) == (107, True)
    assert context["allowPrivilegeEscalation"] is False
    assert context["capabilities"] == {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]}


@pytest.mark.feature("VML-28")
def test_labels_of_the_instance_reach_the_pod() -> None:
    pod = rendered(instance(metadata={"labels": {"special": "key"}}))
    assert pod["metadata"]["labels"]["special"] == "key"


@pytest.mark.feature("NET-36")
def test_a_service_mesh_is_asked_for_on_the_pod() -> None:
    pod = rendered(instance(metadata={"annotations": {"sidecar.istio.io/inject": "true"}}))
    assert pod["metadata"]["annotations"]["sidecar.istio.io/inject"] == "true"
    assert pod["metadata"]["labels"]["sidecar.istio.io/inject"] == "true"
    assert pod["spec"]["automountServiceAccountToken"] is True


def test_commands_of_backup_tools_name_the_programs_of_the_launchers_image() -> None:
    pod = rendered(instance())
    command = pod["metadata"]["annotations"]["pre.hook.backup.velero.io/command"]
    assert command == '["/usr/bin/virt-freezer", "--freeze", "--name", "vm", "--namespace", "ns"]'


@pytest.mark.feature("SUP-14")
@pytest.mark.parametrize(("devices", "logged"), [({}, True), ({"logSerialConsole": False}, False)])
def test_the_serial_consoles_log_is_a_containers(devices: JsonObject, logged: bool) -> None:
    pod = rendered(instance(domain={"devices": devices}))
    names = [item["name"] for item in pod["spec"].get("initContainers", [])]
    assert ("guest-console-log" in names) is logged


@pytest.mark.feature("SUP-14")
def test_a_guests_own_switch_for_its_log_beats_the_installations() -> None:
    off = settings(virtualMachineOptions={"disableSerialConsoleLog": {}})
    assert "initContainers" not in rendered(instance(), off)["spec"]
    asked = rendered(instance(domain={"devices": {"logSerialConsole": True}}), off)
    assert [item["name"] for item in asked["spec"]["initContainers"]] == ["guest-console-log"]


@pytest.mark.feature("SUP-11")
@pytest.mark.parametrize(("labels", "level"), [({}, "2"), ({"logVerbosity": "7"}, "7")])
def test_the_launchers_verbosity_is_the_installations_or_the_guests_own(
    labels: dict[str, str], level: str
) -> None:
    vmi = instance()
    vmi["metadata"]["labels"] = labels
    made = rendered(vmi, settings(developerConfiguration={"logVerbosity": {"virtLauncher": 2}}))
    environment = {each["name"]: each.get("value") for each in made["spec"]["containers"][0]["env"]}
    assert environment["VIRT_LAUNCHER_LOG_VERBOSITY"] == level


@pytest.mark.feature("VML-19")
@pytest.mark.parametrize(("given", "seconds"), [({}, 60), ({"terminationGracePeriodSeconds": 180}, 210)])
def test_the_pod_outlives_the_guests_grace_period(given: JsonObject, seconds: int) -> None:
    assert rendered(instance(**given))["spec"]["terminationGracePeriodSeconds"] == seconds


@pytest.mark.feature("NET-12")
def test_the_pod_has_the_guests_host_name() -> None:
    assert rendered(instance(hostname="demo-vm"))["spec"]["hostname"] == "demo-vm"
    assert rendered(instance())["spec"]["hostname"] == "vm"


def test_an_attachment_pod_takes_the_launchers_image_as_the_launcher_does() -> None:
    config = settings(imagePullPolicy="Never")
    launcher = rendered(instance(), config)
    launcher["spec"]["nodeName"] = "node01"
    inputs = RenderInputs(decode(VirtualMachineInstance, instance()), config, IMAGES)
    (container,) = render_attachment_pod(inputs, launcher, [])["spec"]["containers"]
    assert (container["image"], container["imagePullPolicy"]) == ("launcher:1", "Never")
    assert compute(launcher)["imagePullPolicy"] == "Never"


@pytest.mark.parametrize("value", ["", "true", "false"])
def test_a_launcher_that_is_to_crash_is_told_whatever_the_annotation_says(value: str) -> None:
    annotations = {"kubevirt.io/func-test-virt-launcher-fail-fast": value}
    assert "--simulate-crash" in compute(rendered(instance(metadata={"annotations": annotations})))["args"]
    assert "--simulate-crash" not in compute(rendered(instance()))["args"]


@pytest.mark.parametrize(
    ("account", "has_volume", "used", "has_token"),
    [("spec", False, "spec", False), ("", True, "volume", True), ("", False, None, False)],
)
def test_the_pod_has_the_account_of_the_spec_and_a_token_for_a_volume_only(
    account: str, has_volume: bool, used: str | None, has_token: bool
) -> None:
    volumes = [{"name": "sa", "serviceAccount": {"serviceAccountName": "volume"}}] if has_volume else []
    spec = rendered(instance(serviceAccountName=account, volumes=volumes))["spec"]
    assert (spec.get("serviceAccountName"), spec["automountServiceAccountToken"]) == (used, has_token)


def test_a_pod_names_servers_without_leading_zeros() -> None:
    wanted = {"nameservers": ["8.8.8.8", "01.1.1.010"], "searches": ["example.com"]}
    pod = rendered(instance(dnsPolicy="None", dnsConfig=wanted))
    assert pod["spec"]["dnsConfig"] == {**wanted, "nameservers": ["8.8.8.8", "1.1.1.10"]}
