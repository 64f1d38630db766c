"""The spec of an instance, without devices and volumes."""

from __future__ import annotations

from virtplane.api.fields.devices import DEVICES
from virtplane.api.fields.state import Table, acts, copied, prefixed, warns
from virtplane.api.fields.volumes import VOLUMES

_SWITCH = "switches the enlightenment in the domain; under KVM only"
_TIMER = "the guest's timer"
_CHASSIS = "SMBIOS table of the chassis"
_PROBE = "probes of the launcher's container; commands and pings reach the guest through virt-probe"

_CPU: Table = {
    "cores": acts("topology of the guest, and the pod's CPU request"),
    "dedicatedCpuPlacement": acts("the pod asks for exclusive CPUs, one for each virtual CPU"),
    "features[].name": acts("CPU feature of the guest; the node must have it where it is required"),
    "features[].policy": acts("policy of the CPU feature"),
    "isolateEmulatorThread": acts("one more exclusive CPU, for the emulator's own threads"),
    "maxSockets": acts("sockets that the guest's topology has room for"),
    "model": acts("CPU model of the guest; the node must have it"),
    "numa.guestMappingPassthrough": acts("the guest sees the NUMA nodes on which its CPUs are"),
    "realtime.mask": acts("virtual CPUs with real-time priority; all where there is no mask"),
    "sockets": acts("topology of the guest, and the pod's CPU request"),
    "threads": acts("topology of the guest, and the pod's CPU request"),
}

_HYPERV: Table = {
    "evmcs.enabled": acts(_SWITCH),
    "frequencies.enabled": acts(_SWITCH),
    "ipi.enabled": acts(_SWITCH),
    "reenlightenment.enabled": acts(_SWITCH),
    "relaxed.enabled": acts(_SWITCH),
    "reset.enabled": acts(_SWITCH),
    "runtime.enabled": acts(_SWITCH),
    "spinlocks.enabled": acts(_SWITCH),
    "spinlocks.spinlocks": acts("retries before the guest tells of a spin lock"),
    "synic.enabled": acts(_SWITCH),
    "synictimer.direct.enabled": acts(_SWITCH),
    "synictimer.enabled": acts(_SWITCH),
    "tlbflush.direct": warns("libvirt 9 has no such switch"),
    "tlbflush.enabled": acts(_SWITCH),
    "tlbflush.extended": warns("libvirt 9 has no such switch"),
    "vapic.enabled": acts(_SWITCH),
    "vendorid.enabled": acts(_SWITCH),
    "vendorid.vendorid": acts("hypervisor vendor that the guest sees"),
    "vpindex.enabled": acts(_SWITCH),
}

_FEATURES: Table = {
    "acpi.enabled": acts("ACPI in the domain"),
    "apic.enabled": acts("APIC in the domain"),
    "apic.endOfInterrupt": acts("paravirtual end of interrupt"),
    **prefixed("hyperv", _HYPERV),
    "hypervPassthrough.enabled": acts("all enlightenments that the node has; under KVM only"),
    "kvm.hidden": acts("hides KVM from the guest"),
    "pvspinlock.enabled": acts("paravirtual spin locks"),
    "smm.enabled": acts("system management mode"),
}

_CLOCK: Table = {
    "timer.hpet.present": acts(_TIMER),
    "timer.hpet.tickPolicy": acts(_TIMER),
    "timer.hyperv.present": acts(_TIMER),
    "timer.kvm.present": acts(_TIMER),
    "timer.pit.present": acts(_TIMER),
    "timer.pit.tickPolicy": acts(_TIMER),
    "timer.rtc.present": acts(_TIMER),
    "timer.rtc.tickPolicy": acts(_TIMER),
    "timer.rtc.track": acts(_TIMER),
    "timezone": acts("time zone of the guest's hardware clock"),
    "utc.offsetSeconds": acts("seconds by which the guest's hardware clock differs from UTC"),
}

_TOO_NEW = "nodes and devices are chosen by it, but libvirt 9 cannot start such guests"

LAUNCH_SECURITY: Table = {
    "sev.attestation": warns("the guest starts without waiting for its owner"),
    "sev.dhCert": acts("certificate of the guest's owner"),
    "sev.policy.encryptedState": acts("registers are encrypted, too"),
    "sev.session": acts("session of the guest's owner"),
    "snp": warns(_TOO_NEW),
    "tdx": warns(_TOO_NEW),
}

_KERNEL_BOOT: Table = {
    "container.image": acts("image with a kernel that the guest boots"),
    "container.imagePullPolicy": acts("when the image is pulled"),
    "container.imagePullSecret": acts("secret for pulling the image"),
    "container.initrdPath": acts("file of the image that is the first root file system"),
    "container.kernelPath": acts("file of the image that is the kernel"),
    "kernelArgs": acts("command line of the kernel"),
}

DOMAIN: Table = {
    "chassis.asset": acts(_CHASSIS),
    "chassis.manufacturer": acts(_CHASSIS),
    "chassis.serial": acts(_CHASSIS),
    "chassis.sku": acts(_CHASSIS),
    "chassis.version": acts(_CHASSIS),
    **prefixed("clock", _CLOCK),
    **prefixed("cpu", _CPU),
    **prefixed("devices", DEVICES),
    **prefixed("features", _FEATURES),
    "firmware.acpi.msdmNameRef": acts("ACPI table MSDM"),
    "firmware.acpi.slicNameRef": acts("ACPI table SLIC"),
    "firmware.bootloader.bios.useSerial": acts("BIOS messages on the serial console"),
    "firmware.bootloader.efi.persistent": acts("a claim that keeps the EFI variables"),
    "firmware.bootloader.efi.secureBoot": acts("which OVMF image boots the guest"),
    **prefixed("firmware.kernelBoot", _KERNEL_BOOT),
    "firmware.serial": acts("serial number in SMBIOS"),
    "firmware.uuid": acts("UUID in SMBIOS and in cloud-init data"),
    "ioThreads.supplementalPoolThreadCount": acts("I/O threads beside the guest's CPUs"),
    "ioThreadsPolicy": acts("how disks share I/O threads"),
    **prefixed("launchSecurity", LAUNCH_SECURITY),
    "machine.type": acts("machine type of the domain; the node must have it"),
    "memory.guest": acts("memory of the guest, and the pod's memory request"),
    "memory.hugepages.pageSize": acts("huge pages for the guest's memory"),
    "memory.maxGuest": acts("up to how much memory can be plugged in while the guest runs"),
    "memory.reservedOverhead.addedOverhead": acts("added to the pod's memory request"),
    "memory.reservedOverhead.memLock": acts("whether QEMU may lock the guest's memory"),
    "rebootPolicy": acts("what a reboot from inside does"),
    "resources.limits": acts("the pod's limits"),
    "resources.overcommitGuestOverhead": acts("leaves the overhead out of the pod's memory request"),
    "resources.requests": acts("the pod's requests"),
}

INSTANCE: Table = {
    "accessCredentials[].sshPublicKey.propagationMethod.configDrive": acts("keys in the config drive"),
    "accessCredentials[].sshPublicKey.propagationMethod.noCloud": acts("keys in the cloud-init data"),
    "accessCredentials[].sshPublicKey.propagationMethod.qemuGuestAgent.users": acts("users who get the keys"),
    "accessCredentials[].sshPublicKey.source.secret.secretName": acts("secret that holds the keys"),
    "accessCredentials[].userPassword.propagationMethod.qemuGuestAgent": acts("the agent sets passwords"),
    "accessCredentials[].userPassword.source.secret.secretName": acts("secret that holds the passwords"),
    "affinity": copied("the pod's affinity"),
    "architecture": acts("nodes that the pod can run on; guests run on x86-64 alone"),
    "dnsConfig": copied("the pod's DNS settings, which the guest gets by DHCP"),
    "dnsPolicy": acts("the pod's DNS policy"),
    **prefixed("domain", DOMAIN),
    "evictionStrategy": acts("whether the pod may be evicted; nothing migrates yet"),
    "hostname": acts("name of pod and guest"),
    "livenessProbe": copied(_PROBE),
    "networks[].multus.default": acts("the network takes the place of the pod network"),
    "networks[].multus.networkName": acts("network attachment definition of a secondary network"),
    "networks[].name": acts("ties network and interface together"),
    "networks[].pod.vmIPv6NetworkCIDR": acts("IPv6 network that guests behind masquerade see"),
    "networks[].pod.vmNetworkCIDR": acts("network that guests behind masquerade see"),
    "networks[].resourceClaim": warns(),
    "nodeSelector": acts("labels that the node must have"),
    "priorityClassName": acts("priority of the pod"),
    "readinessProbe": copied(_PROBE),
    "resourceClaims": copied("resource claims of the pod"),
    "schedulerName": acts("who places the pod"),
    "serviceAccountName": acts("account of the pod; no token without a volume for it"),
    "startStrategy": acts("the guest starts paused"),
    "subdomain": acts("DNS name of pod and guest"),
    "terminationGracePeriodSeconds": acts("time that the guest has to shut down"),
    "tolerations": copied("the pod's tolerations"),
    "topologySpreadConstraints": copied("the pod's spread constraints"),
    "utilityVolumes[].claimName": acts("claim that the launcher's pod gets beside the guest's disks"),
    "utilityVolumes[].name": acts("name of the folder or device below `/var/run/kubevirt/hotplug-disks`"),
    "utilityVolumes[].readOnly": acts("the claim's file system is mounted read-only"),
    "utilityVolumes[].type": warns("says what the volume is for"),
    **VOLUMES,
}
