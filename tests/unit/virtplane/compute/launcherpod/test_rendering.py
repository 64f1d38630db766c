"""The launcher pod of an instance, field by field as users and schedulers see it."""

from __future__ import annotations

from typing import Any

import pytest

from kindling.apiserver.admission.pod_security.levels import Policy, describe
from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from virtplane.api.config import ClusterConfig
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.controller.migration.target import host_model_selector
from virtplane.compute.launcherpod.attachment import render_attachment_pod
from virtplane.compute.launcherpod.inputs import Images, RenderInputs
from virtplane.compute.launcherpod.render import render_launcher_pod

IMAGES = Images(launcher="launcher:1", sidecar="sidecar:1")


def settings(**configuration: Any) -> ClusterConfig:
    return ClusterConfig({"status": {"phase": "Deployed"}, "spec": {"configuration": configuration}})


def instance(*, metadata: JsonObject | None = None, **spec: Any) -> JsonObject:
    domain = {"devices": {}, "memory": {"guest": "128Mi"}, **spec.pop("domain", {})}
    named = {"name": "vm", "namespace": "ns", "uid": "u1", **(metadata or {})}
    return {"metadata": named, "spec": {"architecture": "amd64", "domain": domain, **spec}}


def rendered(vmi: JsonObject, config: ClusterConfig | None = None, **inputs: Any) -> JsonObject:
    return render_launcher_pod(
        RenderInputs(decode(VirtualMachineInstance, vmi), config or settings(), IMAGES, **inputs)
    )


def compute(pod: JsonObject) -> JsonObject:
    return next(item for item in pod["spec"]["containers"] if item["name"] == "compute")


def mounts(pod: JsonObject) -> dict[str, str]:
    return {item["name"]: item["mountPath"] for item in compute(pod)["volumeMounts"]}


def volume(pod: JsonObject, name: str) -> JsonObject:
    return next(item for item in pod["spec"]["volumes"] if item["name"] == name)


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


@pytest.mark.feature("VML-63")
def test_the_pod_goes_to_nodes_that_the_selector_names() -> None:
    assert rendered(instance(nodeSelector={"disk": "ssd"}))["spec"]["nodeSelector"]["disk"] == "ssd"


@pytest.mark.feature("VML-11")
def test_the_pod_goes_to_nodes_with_a_living_agent_only() -> None:
    assert rendered(instance())["spec"]["nodeSelector"]["kubevirt.io/schedulable"] == "true"


_TERM = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "b"}}}


@pytest.mark.feature("VML-64")
@pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
def test_affinity_to_pods_is_the_pods(kind: str) -> None:
    wanted = {
        "requiredDuringSchedulingIgnoredDuringExecution": [_TERM],
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": _TERM}],
    }
    assert rendered(instance(affinity={kind: wanted}))["spec"]["affinity"][kind] == wanted


@pytest.mark.feature("VML-65")
def test_affinity_to_nodes_is_narrowed_to_nodes_that_can_run_the_guest() -> None:
    expression = {"key": "zone", "operator": "In", "values": ["a"]}
    preferred = [{"weight": 1, "preference": {"matchExpressions": [expression]}}]
    terms = [{"matchExpressions": [expression]}]
    wanted = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
        "preferredDuringSchedulingIgnoredDuringExecution": preferred,
    }
    found = rendered(instance(affinity={"nodeAffinity": wanted}))["spec"]["affinity"]["nodeAffinity"]
    assert found["preferredDuringSchedulingIgnoredDuringExecution"] == preferred
    (term,) = found["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    obsolete = {"key": "node-labeller.kubevirt.io/obsolete-host-model", "operator": "DoesNotExist"}
    assert term["matchExpressions"] == [expression, obsolete]


@pytest.mark.feature("VML-66")
def test_tolerations_are_the_pods() -> None:
    wanted = [{"key": "key", "operator": "Equal", "value": "virtualization", "effect": "NoSchedule"}]
    assert rendered(instance(tolerations=wanted))["spec"]["tolerations"] == wanted


@pytest.mark.feature("VML-68")
def test_another_scheduler_is_asked_for() -> None:
    assert rendered(instance(schedulerName="my-scheduler"))["spec"]["schedulerName"] == "my-scheduler"
    assert "schedulerName" not in rendered(instance())["spec"]


def _cpu(**cpu: Any) -> JsonObject:
    spec: JsonObject = rendered(instance(domain={"cpu": cpu}))["spec"]
    return spec


def _node_expressions(spec: JsonObject) -> list[JsonObject]:
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return [item for term in required["nodeSelectorTerms"] for item in term["matchExpressions"]]


def test_a_cpu_model_is_looked_for_among_the_nodes() -> None:
    spec = _cpu(model="Conroe")
    assert spec["nodeSelector"]["cpu-model.node.kubevirt.io/Conroe"] == "true"
    assert "affinity" not in spec


def test_the_hosts_own_model_goes_anywhere_but_to_obsolete_hosts() -> None:
    spec = _cpu(model="host-model")
    assert not any(key.startswith("cpu-model") for key in spec["nodeSelector"])
    keys = [(item["key"], item["operator"]) for item in _node_expressions(spec)]
    assert keys == [("node-labeller.kubevirt.io/obsolete-host-model", "DoesNotExist")]


@pytest.mark.parametrize(
    ("policy", "is_required"),
    [
        pytest.param("require", True),
        pytest.param("", True),
        pytest.param(None, True),
        pytest.param("force", False, marks=pytest.mark.feature("VML-58")),
        pytest.param("optional", False, marks=pytest.mark.feature("VML-60")),
        ("disable", False),
        ("forbid", False),
    ],
)
def test_only_a_required_cpu_feature_must_be_there(policy: str | None, is_required: bool) -> None:
    feature = {"name": "apic"} if policy is None else {"name": "apic", "policy": policy}
    spec = _cpu(model="Conroe", features=[feature])
    assert ("cpu-feature.node.kubevirt.io/apic" in spec["nodeSelector"]) is is_required


def test_a_forbidden_cpu_feature_must_not_be_there() -> None:
    spec = _cpu(model="Conroe", features=[{"name": "apic", "policy": "forbid"}])
    wanted = {"key": "cpu-feature.node.kubevirt.io/apic", "operator": "DoesNotExist"}
    assert wanted in _node_expressions(spec)


@pytest.mark.feature("VML-73")
def test_requests_without_limits_get_the_overhead_and_no_limits() -> None:
    asked = {"requests": {"memory": "128Mi"}}
    found = compute(rendered(instance(domain={"resources": asked})))["resources"]
    assert not {"cpu", "memory"} & set(found["limits"])
    assert found["requests"]["memory"] != "128Mi"


def _quota(*names: str) -> JsonObject:
    return {"spec": {"hard": dict.fromkeys(names, "10")}}


@pytest.mark.feature("VML-74")
def test_limits_are_set_where_a_quota_asks_for_them() -> None:
    vmi = instance(domain={"cpu": {"sockets": 2, "cores": 2, "threads": 1}})
    plain = compute(rendered(vmi))["resources"]
    limited = compute(rendered(vmi, quotas=[_quota("limits.cpu", "limits.memory")]))["resources"]
    assert not {"cpu", "memory"} & set(plain["limits"])
    assert limited["limits"]["cpu"] == "4"

    def bytes_of(text: str) -> int:
        from kubecore.objects.quantity import Quantity

        return Quantity.parse(text).value

    assert bytes_of(limited["limits"]["memory"]) == 2 * bytes_of(plain["requests"]["memory"])


def _probe(**probe: Any) -> JsonObject:
    found: JsonObject = compute(rendered(instance(readinessProbe=probe, livenessProbe=probe)))
    assert found["readinessProbe"] == found["livenessProbe"]
    return dict(found["readinessProbe"])


@pytest.mark.feature("MON-41")
def test_an_http_probe_is_the_containers() -> None:
    handler = {"port": 1500, "path": "/healthz", "httpHeaders": [{"name": "Custom-Header", "value": "A"}]}
    assert _probe(httpGet=handler)["httpGet"] == handler


@pytest.mark.feature("MON-42")
def test_a_tcp_probe_is_the_containers() -> None:
    assert _probe(tcpSocket={"port": 1500})["tcpSocket"] == {"port": 1500}


def test_a_ping_of_the_guests_agent_is_a_command_in_the_container() -> None:
    probe = _probe(guestAgentPing={}, timeoutSeconds=10)
    assert "guestAgentPing" not in probe
    command = ["virt-probe", "--domainName", "ns_vm", "--timeoutSeconds", "10", "--guestAgentPing"]
    assert probe["exec"] == {"command": command}
    assert probe["timeoutSeconds"] == 11


def test_a_probes_command_runs_in_the_guest() -> None:
    probe = _probe(exec={"command": ["cat", "/tmp/x", "--", "y"]}, timeoutSeconds=5)
    command = ["virt-probe", "--domainName", "ns_vm", "--timeoutSeconds", "5", "--command", "cat"]
    assert probe["exec"] == {"command": [*command, "--", "/tmp/x", "--", "y"]}
    assert probe["timeoutSeconds"] == 6


def test_a_probe_without_a_command_keeps_no_pod_from_being_made() -> None:
    assert _probe(exec={})["exec"]["command"][-3:] == ["--command", "", "--"]


def test_commands_of_backup_tools_name_the_programs_of_the_launchers_image() -> None:
    pod = rendered(instance())
    command = pod["metadata"]["annotations"]["pre.hook.backup.velero.io/command"]
    assert command == '["/usr/bin/virt-freezer", "--freeze", "--name", "vm", "--namespace", "ns"]'


@pytest.mark.feature("MON-44")
def test_times_and_thresholds_of_a_probe_are_kept_and_its_delay_begins_with_the_guest() -> None:
    given = {"periodSeconds": 20, "timeoutSeconds": 10, "failureThreshold": 4, "successThreshold": 3}
    probe = _probe(tcpSocket={"port": 1}, initialDelaySeconds=120, **given)
    assert {key: probe[key] for key in given} == given
    assert probe["initialDelaySeconds"] == 130


@pytest.mark.feature("VMC-36")
def test_a_claim_with_files_is_mounted_and_a_block_device_is_passed() -> None:
    vmi = instance(volumes=[{"name": "root", "persistentVolumeClaim": {"claimName": "c"}}])
    pod = rendered(vmi)
    assert volume(pod, "root")["persistentVolumeClaim"] == {"claimName": "c"}
    assert mounts(pod)["root"] == "/var/run/kubevirt-private/vmi-disks/root"
    block = rendered(vmi, claims={"c": {"spec": {"volumeMode": "Block"}}})
    assert compute(block)["volumeDevices"] == [{"name": "root", "devicePath": "/dev/root"}]
    assert "root" not in mounts(block)


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


def with_sidecars(annotation: str) -> tuple[JsonObject, ClusterConfig]:
    gate = settings(developerConfiguration={"featureGates": ["Sidecar"]})
    return instance(metadata={"annotations": {"hooks.kubevirt.io/hookSidecars": annotation}}), gate


@pytest.mark.parametrize("image", ['"image": "launcher:2", ', '"image": "launcher@sha256:0", ', ""])
def test_users_run_no_commands_in_the_launchers_own_image(image: str) -> None:
    vmi, config = with_sidecars(f'[{{{image}"command": ["/bin/sh", "-c", "cat /etc/os-release"]}}]')
    images = Images(launcher="launcher:1", sidecar="launcher:1")
    with pytest.raises(ValueError, match="launcher's own image"):
        render_launcher_pod(RenderInputs(decode(VirtualMachineInstance, vmi), config, images))


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


@pytest.mark.feature("VML-19")
@pytest.mark.parametrize(("given", "seconds"), [({}, 60), ({"terminationGracePeriodSeconds": 180}, 210)])
def test_the_pod_outlives_the_guests_grace_period(given: JsonObject, seconds: int) -> None:
    assert rendered(instance(**given))["spec"]["terminationGracePeriodSeconds"] == seconds


@pytest.mark.feature("VMC-59", "VMC-60")
def test_the_secret_of_ssh_keys_is_mounted_for_cloud_init() -> None:
    source = {"secret": {"secretName": "keys"}}
    credential = {"sshPublicKey": {"propagationMethod": {"noCloud": {}}, "source": source}}
    pod = rendered(instance(accessCredentials=[credential]))
    assert volume(pod, "keys-access-cred")["secret"] == {"secretName": "keys"}
    assert mounts(pod)["keys-access-cred"] == "/var/run/kubevirt-private/secret/keys-access-cred"


@pytest.mark.feature("NET-12")
def test_the_pod_has_the_guests_host_name() -> None:
    assert rendered(instance(hostname="demo-vm"))["spec"]["hostname"] == "demo-vm"
    assert rendered(instance())["spec"]["hostname"] == "vm"


@pytest.mark.parametrize(
    ("domain", "added_mi"),
    [
        ({"devices": {"tpm": {}}}, 53),
        ({"launchSecurity": {"sev": {}}}, 256),
        ({"devices": {"gpus": [{"name": "g", "deviceName": "a/b"}]}}, 1024),
        ({"devices": {"autoattachGraphicsDevice": False}}, -32),
        ({"cpu": {"sockets": 3}}, 16),
    ],
)
def test_the_overhead_grows_with_what_the_guest_has(domain: JsonObject, added_mi: int) -> None:
    def overhead(pod: JsonObject) -> int:
        return int(pod["metadata"]["annotations"]["kubevirt.io/memory-overhead-bytes"])

    assert overhead(rendered(instance(domain=domain))) - overhead(rendered(instance())) == added_mi << 20


def test_a_guest_with_its_hosts_model_moves_to_hosts_that_support_it() -> None:
    labels = {
        "host-model-cpu.node.kubevirt.io/EPYC": "true",
        "host-model-required-features.node.kubevirt.io/aes": "true",
        "other": "x",
    }
    node = {"metadata": {"name": "n", "labels": labels}}
    assert host_model_selector("host-model", node) == {
        "cpu-model-migration.node.kubevirt.io/EPYC": "true",
        "cpu-feature.node.kubevirt.io/aes": "true",
    }
    assert host_model_selector("Conroe", node) == {}


def test_an_attachment_pod_takes_the_launchers_image_as_the_launcher_does() -> None:
    config = settings(imagePullPolicy="Never")
    launcher = rendered(instance(), config)
    launcher["spec"]["nodeName"] = "node01"
    inputs = RenderInputs(decode(VirtualMachineInstance, instance()), config, IMAGES)
    (container,) = render_attachment_pod(inputs, launcher, [])["spec"]["containers"]
    assert (container["image"], container["imagePullPolicy"]) == ("launcher:1", "Never")
    assert compute(launcher)["imagePullPolicy"] == "Never"


def test_a_file_server_without_a_volume_of_the_pod_serves_a_folder_of_its_name() -> None:
    """Volumes that are plugged in later are not the launcher's, file systems that name them are."""
    later = {"name": "later", "persistentVolumeClaim": {"claimName": "c", "hotpluggable": True}}
    vmi = instance(domain={"devices": {"filesystems": [{"name": "later", "virtiofs": {}}]}}, volumes=[later])
    (server,) = [each for each in rendered(vmi)["spec"]["containers"] if each["name"] == "virtiofs-later"]
    assert "--shared-dir=/var/run/kubevirt-private/vmi-disks/later" in server["args"]


@pytest.mark.parametrize(
    ("requests", "limits", "expected"),
    [
        ({"cpu": "2", "memory": "1Gi"}, {"cpu": "2", "memory": "1Gi"}, "60M"),
        ({"cpu": "2"}, {"cpu": "2", "memory": "1Gi"}, "60M"),
        ({"memory": "1Gi"}, {"cpu": "2", "memory": "1Gi"}, "35M"),
        ({"cpu": "2", "memory": "1Gi"}, {"cpu": "2", "memory": "2Gi"}, "35M"),
    ],
)
def test_helpers_request_what_they_may_use_where_the_pod_is_to_be_guaranteed(
    requests: JsonObject, limits: JsonObject, expected: str
) -> None:
    pod = rendered(instance(domain={"resources": {"requests": requests, "limits": limits}}))
    log = next(item for item in pod["spec"]["initContainers"] if item["name"] == "guest-console-log")
    assert log["resources"]["requests"]["memory"] == expected


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


@pytest.mark.parametrize("value", ["", "true", "false"])
def test_a_launcher_that_is_to_crash_is_told_whatever_the_annotation_says(value: str) -> None:
    annotations = {"kubevirt.io/func-test-virt-launcher-fail-fast": value}
    assert "--simulate-crash" in compute(rendered(instance(metadata={"annotations": annotations})))["args"]
    assert "--simulate-crash" not in compute(rendered(instance()))["args"]
