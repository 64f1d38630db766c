"""Each setting of which the table says that it acts changes what is made of the KubeVirt object."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support import every_field

import virtplane
from kubecore.json import JsonObject, get_str
from kubecore.objects.structs import decode
from virtplane.api.config import REQUEST_LIMITS, ClusterConfig
from virtplane.api.fields.installation import INSTALLATION
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.apiserver.admission.mutation.instance import default_instance
from virtplane.compute.apiserver.admission.rules import general
from virtplane.compute.launcherpod.inputs import Images, RenderInputs
from virtplane.compute.launcherpod.render import render_launcher_pod
from virtplane.instancetypes.defaults import DefaultingError
from virtplane.operators.kubevirt.certificates import lifetimes
from virtplane.operators.kubevirt.strategy.installation import installation, user_patches
from virtplane.operators.kubevirt.strategy.monitoring import monitor_namespaces
from virtplane.operators.kubevirt.strategy.parameters import Parameters
from virtplane.operators.kubevirt.validation import blocks_removal
from virtplane.reloading import CONFIGURED, tls_settings

_PLACEMENT = {"nodeSelector": {"role": "infra"}}
_ROTATION = {
    "ca": {"duration": "100h", "renewBefore": "10h"},
    "server": {"duration": "20h", "renewBefore": "2h"},
}
_RESOURCES = {"limits": {"cpu": "1"}, "requests": {"cpu": "500m"}}
_ARCHITECTURE = {"emulatedMachines": ["special*"], "machineType": "special-1", "ovmfPath": "/special"}

_LIMITED = {"restClient": {"rateLimiter": {"tokenBucketRateLimiter": {"qps": 7, "burst": 9}}}}

_CONFIGURATION: JsonObject = {
    **dict.fromkeys(
        ("apiConfiguration", "controllerConfiguration", "handlerConfiguration", "webhookConfiguration"),
        _LIMITED,
    ),
    "additionalGuestMemoryOverheadRatio": "1.5",
    "architectureConfiguration": dict.fromkeys(("amd64", "arm64", "s390x"), _ARCHITECTURE),
    "autoCPULimitNamespaceLabelSelector": {"matchLabels": {"limited": "yes"}},
    "commonInstancetypesDeployment": {"enabled": False},
    "cpuModel": "Penryn",
    "cpuRequest": "200m",
    "defaultRuntimeClass": "special",
    "developerConfiguration": {
        "cpuAllocationRatio": 5,
        "disabledFeatureGates": ["ImageVolume"],
        "featureGates": ["Root"],
        "logVerbosity": {
            **dict.fromkeys(("virtAPI", "virtController", "virtHandler", "virtLauncher", "virtOperator"), 7),
            "nodeVerbosity": {"special": 8},
        },
        "memoryOvercommit": 150,
        "nodeSelectors": {"guests": "yes"},
        "useEmulation": True,
    },
    "evictionStrategy": "LiveMigrate",
    "imagePullPolicy": "Always",
    "liveUpdateConfiguration": {"maxCpuSockets": 3},
    "network": {"defaultNetworkInterface": "masquerade"},
    "roleAggregationStrategy": "Manual",
    "seccompConfiguration": {
        "virtualMachineInstanceProfile": {"customProfile": {"localhostProfile": "special.json"}}
    },
    "selinuxLauncherType": "special.process",
    "supportContainerResources": [{"type": "container-disk", "resources": _RESOURCES}],
    "tlsConfiguration": {
        "minTLSVersion": "VersionTLS11",
        "ciphers": ["TLS_RSA_WITH_AES_128_CBC_SHA"],
    },
    "virtualMachineOptions": {"disableSerialConsoleLog": {}},
}
_SPEC: JsonObject = {
    "certificateRotateStrategy": {"selfSigned": _ROTATION},
    "configuration": _CONFIGURATION,
    "customizeComponents": {
        "patches": [
            {
                "resourceType": "Deployment",
                "resourceName": "virt-api",
                "type": "merge",
                "patch": '{"metadata": {"labels": {"special": "yes"}}}',
            }
        ]
    },
    "imagePullPolicy": "Always",
    "imagePullSecrets": [{"name": "registry"}],
    "imageRegistry": "registry.test/mirror",
    "imageTag": "v2",
    "monitorAccount": "reader",
    "monitorNamespace": "watching",
    "infra": {"replicas": 5, "nodePlacement": _PLACEMENT},
    "productComponent": "c",
    "productName": "n",
    "productVersion": "1",
    "serviceMonitorNamespace": "reading",
    "uninstallStrategy": "BlockUninstallIfWorkloadsExist",
    "workloads": {"nodePlacement": _PLACEMENT},
}
_OLD_ROTATION = {"caRotateInterval": "90h", "caOverlapInterval": "9h", "certRotateInterval": "19h"}
_ALTERNATIVES: list[list[every_field.Change]] = [
    [("configuration.ovmfPath", "/own")],
    [("certificateRotateStrategy.selfSigned", _OLD_ROTATION)],
    [("configuration.emulatedMachines", ["other*"])],
    [("configuration.machineType", "other-1")],
    [("configuration.liveUpdateConfiguration", {"maxHotplugRatio": 2})],
    [("configuration.liveUpdateConfiguration", {"maxGuest": "3Gi"})],
    [("configuration.vmRolloutStrategy", "Stage")],
    [
        ("customizeComponents.flags", {key: {"v": "5"} for key in ("api", "controller", "handler")}),
        ("configuration.developerConfiguration", {}),
    ],
    [("configuration.network", {"permitBridgeInterfaceOnPodNetwork": False})],
]

_UPDATES = "compute/controller/workloadupdates.py"
READ_BY = {
    "configuration.developerConfiguration.clusterProfiler": (
        "compute/apiserver/subresources/clusterprofiler.py",
        ".is_profiled",
    ),
    "configuration.developerConfiguration.minimumClusterTSCFrequency": (
        "compute/controller/frequencies.py",
        ".minimum_cluster_tsc_frequency",
    ),
    "configuration.developerConfiguration.minimumReservePVCBytes": (
        "compute/handler/controller.py",
        ".minimum_reserve_pvc_bytes",
    ),
    "configuration.developerConfiguration.pvcTolerateLessSpaceUpToPercent": (
        "compute/handler/controller.py",
        ".pvc_tolerate_less_space_up_to_percent",
    ),
    "configuration.architectureConfiguration.defaultArchitecture": (
        "operators/kubevirt/controller.py",
        '"defaultArchitecture"',
    ),
    "configuration.ksmConfiguration": ("compute/handler/node/ksm.py", ".ksm_configuration"),
    "configuration.mediatedDevicesConfiguration": (
        "compute/handler/node/mediated.py",
        ".mediated_devices_configuration",
    ),
    "configuration.memBalloonStatsPeriod": (
        "compute/handler/libvirtd/domainoptions.py",
        ".mem_balloon_stats_period",
    ),
    "configuration.virtualMachineOptions.disableFreePageReporting": (
        "compute/handler/libvirtd/domainoptions.py",
        ".disable_free_page_reporting",
    ),
    "configuration.supportedGuestAgentVersions": (
        "compute/handler/controller.py",
        ".supported_guest_agent_versions",
    ),
    "configuration.virtualMachineInstancesPerNode": (
        "compute/handler/node/keepers.py",
        ".virtual_machine_instances_per_node",
    ),
    "configuration.instancetype.referencePolicy": (
        "compute/controller/vm/instancetypes.py",
        ".instancetype_reference_policy",
    ),
    "configuration.network.binding": ("compute/handler/controller.py", ".binding_plugins"),
    "configuration.obsoleteCPUModels": ("compute/handler", ".obsolete_cpu_models"),
    "configuration.permittedHostDevices": ("compute/handler/node/keepers.py", ".permitted_host_devices"),
    "configuration.persistentReservationConfiguration.enabled": (
        "compute/apiserver/admission/rules/devices.py",
        ".persistent_reservation",
    ),
    "configuration.smbios.family": ("compute/handler/libvirtd/domainoptions.py", ".smbios"),
    "configuration.smbios.manufacturer": ("compute/handler/libvirtd/domainoptions.py", ".smbios"),
    "configuration.smbios.product": ("compute/handler/libvirtd/domainoptions.py", ".smbios"),
    "configuration.smbios.sku": ("compute/handler/libvirtd/domainoptions.py", ".smbios"),
    "configuration.smbios.version": ("compute/handler/libvirtd/domainoptions.py", ".smbios"),
    "configuration.vmStateStorageClass": ("compute/controller/vmi/backend.py", ".vm_state_storage_class"),
    "workloadUpdateStrategy.batchEvictionInterval": (_UPDATES, ".batch_eviction_interval"),
    "workloadUpdateStrategy.batchEvictionSize": (_UPDATES, ".batch_eviction_size"),
    "workloadUpdateStrategy.workloadUpdateMethods": (_UPDATES, ".workload_update_methods"),
}
"""Settings whose effect no pure function shows, and the code that reads them."""


def _kubevirt(spec: JsonObject) -> JsonObject:
    return {"metadata": {"namespace": "kubevirt"}, "spec": spec, "status": {"phase": "Deployed"}}


def _vmi(architecture: str) -> JsonObject:
    volumes = [{"name": "root", "containerDisk": {"image": "disk:1"}}]
    domain: JsonObject = {"devices": {}, "memory": {"guest": "1Gi"}}
    spec = {"architecture": architecture, "domain": domain, "volumes": volumes}
    return {"metadata": {"name": "vm", "namespace": "ns", "uid": "u"}, "spec": spec}


def _pod(spec: JsonObject) -> JsonObject:
    images, namespace = Images("launcher", "sidecar"), {"metadata": {"labels": {"limited": "yes"}}}
    config = ClusterConfig(_kubevirt(spec))
    return render_launcher_pod(
        RenderInputs(decode(VirtualMachineInstance, _vmi("amd64")), config, images, namespace=namespace)
    )


def _instances(spec: JsonObject) -> list[Any]:
    config = ClusterConfig(_kubevirt(spec))
    made: list[Any] = []
    for architecture in ("amd64", "arm64", "s390x"):
        vmi = _vmi(architecture)
        try:
            default_instance(vmi, config, "2026-01-01T00:00:00Z")
        except DefaultingError as error:
            made.append(str(error))
        vmi["spec"]["domain"].pop("firmware", None)  # An identity at random.
        wrong = _vmi(architecture)
        wrong["spec"]["domain"]["machine"] = {"type": "special-2"}
        machine_type = general.machine_type("spec", decode(VirtualMachineInstance, wrong).spec, config)
        made += [vmi, list(machine_type)]
    return made


def _firmware(spec: JsonObject) -> list[str]:
    """The folders in which virt-handler looks for UEFI firmware."""
    return [ClusterConfig(_kubevirt(spec)).ovmf_path(name) for name in ("amd64", "arm64", "s390x")]


def _reloaded(spec: JsonObject) -> list[Any]:
    """What components take over at any time."""
    config = ClusterConfig(_kubevirt(spec))
    levels = [config.log_verbosity(name, node) for name in CONFIGURED for node in ("node", "special")]
    return [levels, [config.request_limit(name) for name in REQUEST_LIMITS], tls_settings(config)]


def _objects(spec: JsonObject) -> object:
    config = ClusterConfig(_kubevirt(spec))
    parameters = Parameters(
        namespace="kubevirt",
        image=config.image("product:1"),
        layout="distributed",
        config=config,
        spec=spec,
        pull_policy=get_str(spec, "imagePullPolicy") or "IfNotPresent",
    )
    made = installation(parameters)
    customize = user_patches(spec)
    return [customize(each) for stage in (made.foundation, made.components, made.content) for each in stage]


def test_every_setting_that_acts_changes_what_is_made_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("virtplane.operators.kubevirt.strategy.installation._definitions", list)
    effects = [
        _pod,
        _firmware,
        _instances,
        _objects,
        _reloaded,
        monitor_namespaces,
        lifetimes,
        lambda spec: blocks_removal(_kubevirt(spec)),
    ]
    samples = every_field.documents(_SPEC, _ALTERNATIVES)
    assert set(every_field.silent(INSTALLATION, samples, effects)) == set(READ_BY)


def test_settings_whose_effect_cannot_be_shown_are_read() -> None:
    root = Path(virtplane.__file__).parent
    for place, text in READ_BY.values():
        found = [root / place] if place.endswith(".py") else list((root / place).rglob("*.py"))
        is_read = any(text in path.read_text() for path in found)
        assert is_read, (place, text)


def test_launchers_come_from_the_registry_and_have_the_tag_that_are_named() -> None:
    config = ClusterConfig(_kubevirt({"imageRegistry": "mirror.test", "imageTag": "2"}))
    assert Images("r.test/product:1", "product").of(config) == Images(
        "mirror.test/product:2", "mirror.test/product:2"
    )


def test_smbios_settings_reach_the_domain() -> None:
    from virtplane.compute.domain.context import DomainContext
    from virtplane.compute.domain.platform import render_sysinfo

    wanted = {name: f"my {name}" for name in ("family", "manufacturer", "product", "sku", "version")}
    entries = render_sysinfo(
        decode(VirtualMachineInstance, _vmi("amd64")), DomainContext(emulation=False, smbios=wanted)
    ).iter("entry")
    assert {str(entry.get("name")): entry.text for entry in entries} == wanted
