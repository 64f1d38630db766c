"""The devices of an instance."""

from __future__ import annotations

from virtplane.api.fields.state import Table, acts, prefixed, refused, warns

_DHCP = "in the guest's DHCP lease"
_TAG = "in the config drive, with the address at which the guest finds the device"

_DISK: Table = {
    "blockSize.custom.discardGranularity": acts("the unit in which the guest discards blocks"),
    "blockSize.custom.logical": acts("block size of the disk"),
    "blockSize.custom.physical": acts("block size of the disk"),
    "blockSize.matchVolume.enabled": acts("block size of the storage"),
    "bootOrder": acts("order in which the guest tries to boot"),
    "cache": acts("cache mode of the disk"),
    "cdrom.bus": acts("bus of the CD-ROM"),
    "cdrom.readonly": acts("whether the CD-ROM can be written"),
    "cdrom.tray": acts("whether the tray is open"),
    "changedBlockTracking": warns(),
    "dedicatedIOThread": acts("I/O thread of its own; virtio disks can have one"),
    "disk.bus": acts("bus of the disk"),
    "disk.pciAddress": acts("PCI address in the guest"),
    "disk.readonly": acts("whether the disk can be written"),
    "errorPolicy": acts("what an I/O error does to the guest"),
    "io": acts("I/O mode of the disk"),
    "lun.bus": acts("bus of the LUN"),
    "lun.readonly": acts("whether the LUN can be written"),
    "lun.reservation": acts("the guest reserves shared LUNs by SCSI; the installation has to allow it"),
    "name": acts("ties disk and volume together"),
    "serial": acts("serial number of the disk"),
    "shareable": acts("several guests may have the disk"),
    "tag": acts(_TAG),
}

_INTERFACE: Table = {
    "acpiIndex": acts("number by which the guest can name the card"),
    "binding.name": acts("binding plugin that the installation has registered"),
    "bootOrder": acts("order in which the guest tries to boot"),
    "bridge": acts("the guest takes the pod's place on the network"),
    "dhcpOptions.bootFileName": acts(_DHCP),
    "dhcpOptions.ntpServers": acts(_DHCP),
    "dhcpOptions.privateOptions[].option": acts(_DHCP),
    "dhcpOptions.privateOptions[].value": acts(_DHCP),
    "dhcpOptions.tftpServerName": acts(_DHCP),
    "macAddress": acts("MAC address of the card"),
    "macvtap": refused("discontinued"),
    "masquerade": acts("the guest is behind NAT in its pod"),
    "model": acts("model of the card"),
    "name": acts("ties interface and network together"),
    "passt": refused("discontinued"),
    "passtBinding": warns("libvirt 9 has no vhost-user cards behind passt: the guest has no card"),
    "pciAddress": acts("PCI address in the guest"),
    "portRanges[].end": acts("last port of a range that reaches the guest"),
    "portRanges[].protocol": acts("protocol of the range"),
    "portRanges[].start": acts("first port of a range that reaches the guest"),
    "ports[].name": acts("name of the pod's port"),
    "ports[].port": acts("port of the pod that reaches the guest; all do where none is listed"),
    "ports[].protocol": acts("protocol of the port"),
    "slirp": refused("discontinued"),
    "sriov": acts("the guest has a function of the node's network card, which the network's CNI plugin gave"),
    "state": acts("link of the card: up, down, or no card"),
    "tag": acts(_TAG),
}

_GIVEN: Table = {
    "claimName": warns("the pod has the claim, but the domain no device"),
    "deviceName": acts("resource of the node of which the guest has a device"),
    "name": acts("name of the device"),
    "requestName": warns("the pod has the claim, but the domain no device"),
    "tag": acts(_TAG),
}

DEVICES: Table = {
    "autoattachGraphicsDevice": acts("graphics card and VNC"),
    "autoattachInputDevice": warns("acts in the templates of virtual machines only, as in KubeVirt"),
    "autoattachMemBalloon": acts("memory balloon"),
    "autoattachPodInterface": acts("interface on the pod network where none is listed"),
    "autoattachSerialConsole": acts("serial console"),
    "autoattachVSOCK": acts("socket device between guest and node; the gate VSOCK allows it"),
    "blockMultiQueue": acts("a queue for each virtual CPU in virtio disks and SCSI controllers"),
    "clientPassthrough": acts("USB redirection from clients"),
    "disableHotplug": acts("no SCSI controller for disks that come later"),
    **prefixed("disks[]", _DISK),
    "downwardMetrics": acts("the guest asks for metrics of the node on a channel"),
    "filesystems": warns(
        "the server of shared folders may not make a user namespace under the runtime's seccomp"
        " profile: such guests do not start"
    ),
    **prefixed("gpus[]", _GIVEN),
    "gpus[].virtualGPUOptions.display.enabled": acts("whether the virtual GPU is a display"),
    "gpus[].virtualGPUOptions.display.ramFB.enabled": acts("whether the display shows the guest's start"),
    **prefixed("hostDevices[]", _GIVEN),
    "inputs[].bus": acts("bus of the input device"),
    "inputs[].name": acts("name of the input device"),
    "inputs[].type": acts("type of the input device"),
    **prefixed("interfaces[]", _INTERFACE),
    "logSerialConsole": acts("the serial console as a container's log"),
    "networkInterfaceMultiqueue": acts("a queue of each card for each processor"),
    "panicDevices[].model": acts("device through which the guest says that its kernel crashed"),
    "rng": acts("random numbers of the host"),
    "sound.model": acts("model of the sound card"),
    "sound.name": acts("name of the sound card"),
    "tpm.enabled": acts("TPM emulated by swtpm"),
    "tpm.persistent": acts("a claim that keeps the TPM's state"),
    "useVirtioTransitional": acts("virtio devices that old guests know"),
    "video.type": acts("type of the graphics card"),
    "watchdog.diag288.action": acts("what the watchdog of an s390x guest does"),
    "watchdog.i6300esb.action": acts("what the watchdog does"),
    "watchdog.name": acts("name of the watchdog"),
}
