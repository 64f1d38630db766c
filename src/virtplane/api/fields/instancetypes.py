"""Instance types and preferences: a field has an effect if the field of the instance that it sets has."""

from __future__ import annotations

from virtplane.api.fields.instance import LAUNCH_SECURITY
from virtplane.api.fields.state import Table, acts, copied, prefixed, warns

INSTANCETYPE: Table = {
    "annotations": acts("annotations of the instance"),
    "cpu.dedicatedCPUPlacement": acts("the pod asks for exclusive CPUs, one for each virtual CPU"),
    "cpu.guest": acts("number of virtual CPUs"),
    "cpu.isolateEmulatorThread": acts("one more exclusive CPU, for the emulator's own threads"),
    "cpu.maxSockets": acts("sockets that the guest's topology has room for"),
    "cpu.model": acts("CPU model of the guest"),
    "cpu.numa": copied("NUMA nodes of the guest"),
    "cpu.realtime": copied("virtual CPUs with real-time priority"),
    "gpus": copied("GPUs of the node that the guest has"),
    "hostDevices": copied("devices of the node that the guest has"),
    "ioThreads": copied("I/O threads beside the guest's CPUs"),
    "ioThreadsPolicy": acts("how disks share I/O threads"),
    **prefixed("launchSecurity", LAUNCH_SECURITY),
    "memory.guest": acts("memory of the guest"),
    "memory.hugepages.pageSize": acts("huge pages for the guest's memory"),
    "memory.maxGuest": acts("up to how much memory can be plugged in while the guest runs"),
    "memory.overcommitPercent": acts("lowers the pod's memory request"),
    "nodeSelector": acts("labels that the node must have"),
    "schedulerName": acts("who places the pod"),
}

_DEVICES: Table = {
    "preferredAutoattachGraphicsDevice": acts("graphics card and VNC"),
    "preferredAutoattachInputDevice": acts("a tablet where no input is listed"),
    "preferredAutoattachMemBalloon": acts("memory balloon"),
    "preferredAutoattachPodInterface": acts("interface on the pod network where none is listed"),
    "preferredAutoattachSerialConsole": acts("serial console"),
    "preferredBlockMultiQueue": acts("a queue for each virtual CPU in virtio disks"),
    "preferredCdromBus": acts("bus of CD-ROMs"),
    "preferredDisableHotplug": acts("no SCSI controller for disks that come later"),
    "preferredDiskBlockSize": copied("block sizes of disks"),
    "preferredDiskBus": acts("bus of disks"),
    "preferredDiskCache": acts("cache mode of disks"),
    "preferredDiskDedicatedIoThread": acts("I/O threads of their own for virtio disks"),
    "preferredDiskIO": acts("I/O mode of disks"),
    "preferredInputBus": acts("bus of inputs"),
    "preferredInputType": acts("type of inputs"),
    "preferredInterfaceMasquerade": acts("binding of interfaces on the pod network"),
    "preferredInterfaceModel": acts("model of network cards"),
    "preferredLunBus": acts("bus of LUNs"),
    "preferredNetworkInterfaceMultiQueue": acts("a queue of each card for each processor"),
    "preferredPanicDeviceModel": acts("device through which the guest says that its kernel crashed"),
    "preferredRng": acts("random numbers of the host"),
    "preferredSoundModel": acts("model of the sound card"),
    "preferredTPM.enabled": acts("TPM emulated by swtpm"),
    "preferredTPM.persistent": acts("a claim that keeps the TPM's state"),
    "preferredUseVirtioTransitional": acts("virtio devices that old guests know"),
    "preferredVideoType": acts("type of the graphics card"),
    "preferredVirtualGPUOptions": copied("whether virtual GPUs are displays"),
}

_HYPERV_SWITCHES = (
    "evmcs frequencies ipi reenlightenment relaxed reset runtime spinlocks synic synictimer tlbflush"
    " vapic vendorid vpindex"
)
_FEATURES: Table = {
    "preferredAcpi.enabled": acts("ACPI in the domain"),
    "preferredApic.enabled": acts("APIC in the domain"),
    "preferredApic.endOfInterrupt": acts("paravirtual end of interrupt"),
    **{
        f"preferredHyperv.{name}.enabled": acts("switches the enlightenment in the domain; under KVM only")
        for name in _HYPERV_SWITCHES.split()
    },
    "preferredHyperv.spinlocks.spinlocks": acts("retries before the guest tells of a spin lock"),
    "preferredHyperv.synictimer.direct.enabled": acts("direct timers"),
    "preferredHyperv.tlbflush.direct": warns("libvirt 9 has no such switch"),
    "preferredHyperv.tlbflush.extended": warns("libvirt 9 has no such switch"),
    "preferredHyperv.vendorid.vendorid": acts("hypervisor vendor that the guest sees"),
    "preferredKvm.hidden": acts("hides KVM from the guest"),
    "preferredPvspinlock.enabled": acts("paravirtual spin locks"),
    "preferredSmm.enabled": acts("system management mode"),
}

PREFERENCE: Table = {
    "annotations": acts("annotations of the instance"),
    "clock.preferredClockOffset.timezone": acts("time zone of the guest's hardware clock"),
    "clock.preferredClockOffset.utc.offsetSeconds": acts("offset of the guest's hardware clock from UTC"),
    "clock.preferredTimer": copied("timers of the guest"),
    "cpu.preferredCPUFeatures": copied("CPU features of the guest"),
    "cpu.preferredCPUTopology": acts("how virtual CPUs become sockets, cores and threads"),
    "cpu.spreadOptions.across": acts("how virtual CPUs become sockets, cores and threads"),
    "cpu.spreadOptions.ratio": acts("how virtual CPUs become sockets, cores and threads"),
    **prefixed("devices", _DEVICES),
    **prefixed("features", _FEATURES),
    "firmware.preferredEfi.persistent": acts("a claim that keeps the EFI variables"),
    "firmware.preferredEfi.secureBoot": acts("which OVMF image boots the guest"),
    "firmware.preferredUseBios": acts("boot with SeaBIOS"),
    "firmware.preferredUseBiosSerial": acts("BIOS messages on the serial console"),
    "firmware.preferredUseEfi": acts("boot with OVMF"),
    "firmware.preferredUseSecureBoot": acts("which OVMF image boots the guest"),
    "machine.preferredMachineType": acts("machine type of the domain"),
    "preferSpreadSocketToCoreRatio": acts("how virtual CPUs become sockets and cores"),
    "preferredArchitecture": acts("nodes that the pod can run on; guests are x86-64", "amd64"),
    **prefixed("preferredLaunchSecurity", LAUNCH_SECURITY),
    "preferredSubdomain": acts("DNS name of pod and guest"),
    "preferredTerminationGracePeriodSeconds": acts("time that the guest has to shut down"),
    "requirements.architecture": acts("machines without it are refused"),
    "requirements.cpu.guest": acts("machines with less are refused"),
    "requirements.memory.guest": acts("machines with less are refused"),
    "volumes.preferredStorageClassName": acts("storage class of DataVolume templates"),
}
