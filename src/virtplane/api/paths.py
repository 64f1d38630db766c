"""Folders that several components agree on: on nodes, in launcher pods, and in components' own pods."""

from __future__ import annotations

KUBELET_ROOT = "/var/lib/kubelet"
"""Where kubelets keep pods, device plugins and CSI drivers unless they are told otherwise."""

SECCOMP_DIR = "seccomp"
"""Below the kubelet's root: the folder of seccomp profiles that are named by their paths in it."""
VIRTIOFS_SECCOMP_PROFILE = "kubevirt/virtiofs.json"
"""What the servers of shared folders may ask of the kernel."""

# In launcher pods; the first two are on nodes as well, for virt-handler.
SHARE_DIR = "/var/run/kubevirt"
PRIVATE_DIR = "/var/run/kubevirt-private"
NODE_CGROUPS = "/var/run/kubevirt-cgroup"
"""Where virt-handler has the node's cgroups."""
RESERVATION_HELPER = f"{SHARE_DIR}/daemons/pr/pr-helper.sock"
"""Where the node's helper for SCSI persistent reservations listens, on the node and in launchers."""
EPHEMERAL_DISK_DIR = "/var/run/kubevirt-ephemeral-disks"
CONTAINER_DISK_DIR = f"{SHARE_DIR}/container-disks"
HOTPLUG_DIR = f"{SHARE_DIR}/hotplug-disks"
IMAGE_VOLUME_DIR = "/var/run/kubevirt-image-volume"
KERNEL_BOOT_DIR = "/var/run/kubevirt-kernel-boot"
HOOK_SOCKET_DIR = "/var/run/kubevirt-hooks"
LIBVIRT_RUNTIME_DIR = "/var/run/libvirt"
EMPTY_DISK_DIR = f"{LIBVIRT_RUNTIME_DIR}/empty-disks"
OVMF_DIR = "/usr/share/edk2/ovmf"
"""KubeVirt's default for the folder of UEFI firmware. Debian's packages have another."""
DISTRIBUTION_OVMF_DIR = "/usr/share/OVMF"

# In components' pods: where their certificates are.
API_CERTIFICATES = "/etc/virt-api/certificates"
CDI_CERTIFICATES = "/var/run/certs"
"""With a folder for each."""
CDI_API_CERTIFICATES = f"{CDI_CERTIFICATES}/cdi-apiserver-server-cert"
CDI_UPLOAD_PROXY_CERTIFICATES = f"{CDI_CERTIFICATES}/cdi-uploadproxy-server-cert"
CDI_UPLOAD_CLIENT_CERTIFICATES = f"{CDI_CERTIFICATES}/cdi-uploadserver-client-cert"
CONTROLLER_CERTIFICATES = "/etc/virt-controller/certificates"
HANDLER_CERTIFICATES = "/etc/virt-handler"
"""With a folder for each purpose."""
HANDLER_CLIENT_CERTIFICATES = f"{HANDLER_CERTIFICATES}/clientcertificates"
"""virt-api's, towards virt-handler."""
