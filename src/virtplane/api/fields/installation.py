"""The spec of the KubeVirt object."""

from __future__ import annotations

from virtplane.api.fields.state import Table, acts, acts_on_keys, copied, prefixed, warns
from virtplane.api.verbosity import FLAG

_LOG = acts("how much the component logs: from 3 on debugging messages, from 6 on its requests")
_LIMIT = {
    f"restClient.rateLimiter.tokenBucketRateLimiter.{name}": acts(f"requests to the API server {text}")
    for name, text in (("qps", "per second"), ("burst", "at once after a pause"))
}
_CERTIFICATE = "lifetime of certificates"
_NO_MIGRATION = "nothing migrates yet"


_ARCHITECTURE: Table = {
    "emulatedMachines": acts("machine types that are accepted"),
    "machineType": acts("machine type of machines that name none"),
    "ovmfPath": acts("folder of UEFI firmware in the launcher's image"),
}

_DEVELOPER: Table = {
    "clusterProfiler": acts("components may be profiled (`start-cluster-profiler` and its like)"),
    "cpuAllocationRatio": acts("virtual CPUs for each CPU that a pod asks for"),
    "disabledFeatureGates": acts("gates that are off"),
    "diskVerification": warns(),
    "featureGates": acts("gates that are on"),
    "logVerbosity.nodeVerbosity": acts("the same for all components on a node, in place of theirs"),
    "logVerbosity.virtAPI": _LOG,
    "logVerbosity.virtController": _LOG,
    "logVerbosity.virtHandler": _LOG,
    "logVerbosity.virtLauncher": acts(
        "how much libvirt logs in launchers that start: from 3 on information, from 5 on all"
    ),
    "logVerbosity.virtOperator": _LOG,
    "logVerbosity.virtSynchronizationController": warns("there is no such component"),
    "memoryOvercommit": acts("guest memory in percent of the pod's memory request"),
    "minimumClusterTSCFrequency": acts("nodes for guests that need a stable clock"),
    "minimumReservePVCBytes": acts("bytes that stay free in a claim that gets a new disk"),
    "nodeSelectors": acts("labels that every guest's node must have"),
    "pvcTolerateLessSpaceUpToPercent": acts("how much smaller than requested a claim may be"),
    "useEmulation": acts("whether guests may run without KVM"),
}

_CONFIGURATION: Table = {
    "additionalGuestMemoryOverheadRatio": acts("factor of the pods' memory overhead"),
    **prefixed("apiConfiguration", _LIMIT),
    **prefixed("architectureConfiguration.amd64", _ARCHITECTURE),
    **prefixed("architectureConfiguration.arm64", _ARCHITECTURE),
    "architectureConfiguration.defaultArchitecture": acts("architecture of machines that name none"),
    "architectureConfiguration.ppc64le": warns("no longer supported"),
    **prefixed("architectureConfiguration.s390x", _ARCHITECTURE),
    "autoCPULimitNamespaceLabelSelector": copied("namespaces whose guests get a CPU limit"),
    "changedBlockTrackingLabelSelectors": warns(),
    "commonInstancetypesDeployment.enabled": acts("whether the common instance types are installed"),
    "confidentialCompute": warns(),
    **prefixed("controllerConfiguration", _LIMIT),
    "cpuModel": acts("CPU model of guests that name none"),
    "cpuRequest": acts("CPU request of guests that have none"),
    "defaultRuntimeClass": acts("runtime class of guests' pods"),
    **prefixed("developerConfiguration", _DEVELOPER),
    "emulatedMachines": acts("machine types that are accepted"),
    "evictionStrategy": acts("eviction strategy of guests that name none"),
    **prefixed("handlerConfiguration", _LIMIT),
    "hypervisors": warns(),
    "imagePullPolicy": acts("when launchers' images are pulled"),
    "instancetype.referencePolicy": acts("whether machines keep a reference to their instance type"),
    "ksmConfiguration": copied("nodes whose kernel merges equal pages while memory is short"),
    "liveUpdateConfiguration.maxCpuSockets": acts("room for sockets in guests' topology"),
    "liveUpdateConfiguration.maxGuest": acts("room for memory that is plugged in while a guest runs"),
    "liveUpdateConfiguration.maxHotplugRatio": acts("room for sockets and memory of running guests"),
    "machineType": acts("machine type of machines that name none"),
    "mediatedDevicesConfiguration": copied("mediated devices that nodes make and remove"),
    "memBalloonStatsPeriod": acts("seconds between statistics of guests' memory; 0 for none"),
    **prefixed(
        "migrations",
        dict.fromkeys(
            (
                "allowAutoConverge",
                "allowPostCopy",
                "allowWorkloadDisruption",
                "bandwidthPerMigration",
                "completionTimeoutPerGiB",
                "disableTLS",
                "matchSELinuxLevelOnMigration",
                "maxDowntimeMs",
                "network",
                "nodeDrainTaintKey",
                "parallelMigrationsPerCluster",
                "parallelOutboundMigrationsPerNode",
                "progressTimeout",
                "unsafeMigrationOverride",
                "utilityVolumesTimeout",
            ),
            warns(_NO_MIGRATION),
        ),
    ),
    "minCPUModel": warns("nothing, as in KubeVirt: no model is compared with it"),
    "network.binding": acts(
        "sidecars, networks, taps and device details of binding plugins; their migration does nothing yet"
    ),
    "network.defaultNetworkInterface": acts("binding of guests that name no network"),
    "network.permitBridgeInterfaceOnPodNetwork": acts("whether guests may take their pods' address"),
    "network.permitSlirpInterface": warns("slirp is discontinued"),
    "obsoleteCPUModels": acts("CPU models that nodes do not offer"),
    "ovmfPath": acts("folder of UEFI firmware in the launcher's image"),
    "permittedHostDevices": copied("devices of nodes that guests may have"),
    "persistentReservationConfiguration.enabled": acts("whether disks may ask for SCSI reservations"),
    "roleAggregationStrategy": acts("whether the roles are part of Kubernetes' own"),
    "seccompConfiguration": copied("seccomp profile of guests' pods"),
    "selinuxLauncherType": acts("SELinux type of guests' pods"),
    "smbios.family": acts("SMBIOS of guests"),
    "smbios.manufacturer": acts("SMBIOS of guests"),
    "smbios.product": acts("SMBIOS of guests"),
    "smbios.sku": acts("SMBIOS of guests"),
    "smbios.version": acts("SMBIOS of guests"),
    "supportContainerResources[].resources.limits": acts("limits of helper containers"),
    "supportContainerResources[].resources.requests": acts("requests of helper containers"),
    "supportContainerResources[].type": acts("kind of helper container"),
    "supportedGuestAgentVersions": acts("agents that the instance's condition does not complain of"),
    "tlsConfiguration.ciphers": acts("cipher suites of TLS 1.2 and older that servers of components accept"),
    "tlsConfiguration.minTLSVersion": acts("the oldest version of TLS that they accept"),
    "virtTemplateDeployment": warns(),
    "virtualMachineInstancesPerNode": acts("how many guests a node takes"),
    "virtualMachineOptions.disableFreePageReporting": acts("guests keep the pages that they free"),
    "virtualMachineOptions.disableSerialConsoleLog": acts("the serial console is not logged"),
    "vmRolloutStrategy": acts("whether changes reach running guests"),
    "vmStateStorageClass": acts("storage class of claims for firmware and TPM state"),
    **prefixed("webhookConfiguration", _LIMIT),
}

INSTALLATION: Table = {
    "certificateRotateStrategy.selfSigned.ca.duration": acts(_CERTIFICATE),
    "certificateRotateStrategy.selfSigned.ca.renewBefore": acts(_CERTIFICATE),
    "certificateRotateStrategy.selfSigned.caOverlapInterval": acts(_CERTIFICATE),
    "certificateRotateStrategy.selfSigned.caRotateInterval": acts(_CERTIFICATE),
    "certificateRotateStrategy.selfSigned.certRotateInterval": acts(_CERTIFICATE),
    "certificateRotateStrategy.selfSigned.server.duration": acts(_CERTIFICATE),
    "certificateRotateStrategy.selfSigned.server.renewBefore": acts(_CERTIFICATE),
    **prefixed("configuration", _CONFIGURATION),
    **{
        f"customizeComponents.flags.{name}": acts_on_keys(
            "`v`: how much the component logs, where `logVerbosity` does not say; other flags warn",
            FLAG,
        )
        for name in ("api", "controller", "handler")
    },
    "customizeComponents.patches": copied("patches of installed objects"),
    "imagePullPolicy": acts("when components' images are pulled"),
    "imagePullSecrets": copied("secrets for the images' registry"),
    "imageRegistry": acts("where images of installed components and of launchers come from"),
    "imageTag": acts("their tag"),
    "infra.nodePlacement": copied("nodes of the control plane"),
    "infra.replicas": acts("replicas of the control plane"),
    "monitorAccount": acts("the account of Prometheus, which may read metrics"),
    "monitorNamespace": acts("where that account is"),
    "productComponent": acts("label of installed objects"),
    "productName": acts("label of installed objects"),
    "productVersion": acts("label of installed objects"),
    "serviceMonitorNamespace": acts("where the ServiceMonitor of components is, if not beside that account"),
    "synchronizationPort": warns(),
    "uninstallStrategy": acts("whether the object may go while there are machines"),
    "workloadUpdateStrategy.batchEvictionInterval": acts("time between the evictions of two batches"),
    "workloadUpdateStrategy.batchEvictionSize": acts("how many guests are evicted for an update at once"),
    "workloadUpdateStrategy.workloadUpdateMethods": acts(
        "how guests get to launchers of a new image", ineffective="LiveMigrate"
    ),
    "workloads.nodePlacement": copied("nodes of virt-handler"),
    "workloads.replicas": warns("there is one virt-handler on each node"),
}
