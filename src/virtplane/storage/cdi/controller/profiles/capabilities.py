"""The table of provisioners: which claims a storage class can serve, and how its volumes are best copied.

A provisioner whose classes differ by their parameters has several rows: `VARIANTS` says which one holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PropertySet:
    """An access mode, and the volume mode with which the provisioner has it."""

    access_mode: str
    volume_mode: str


@dataclass(frozen=True, slots=True)
class Capability:
    """What a provisioner can do; the best set comes first. Empty texts leave the choice to CDI's defaults."""

    sets: tuple[PropertySet, ...]
    clone_strategy: str = ""
    cron_format: str = ""
    minimum_size: str = ""


RWX_BLOCK = PropertySet("ReadWriteMany", "Block")
RWX_FILE = PropertySet("ReadWriteMany", "Filesystem")
RWO_BLOCK = PropertySet("ReadWriteOnce", "Block")
RWO_FILE = PropertySet("ReadWriteOnce", "Filesystem")
ROX_BLOCK = PropertySet("ReadOnlyMany", "Block")
ROX_FILE = PropertySet("ReadOnlyMany", "Filesystem")

_BLOCK_ALL = (RWX_BLOCK, RWO_BLOCK, RWO_FILE)
_FILE_ALL = (RWX_FILE, RWO_FILE)
_FILE_ONCE = (RWO_FILE,)
_FILE_OR_BLOCK_ONCE = (RWO_FILE, RWO_BLOCK)
_FILE_MANY = (RWX_FILE,)
_BLOCK_ONCE = (RWO_BLOCK,)
_ONCE = (RWO_BLOCK, RWO_FILE)
_FILE_EVERY = (RWX_FILE, RWO_FILE, ROX_FILE)
_EVERY_BUT_SHARED_FILE = (RWX_BLOCK, RWO_BLOCK, RWO_FILE, ROX_BLOCK, ROX_FILE)
_BLOCK_EVERY = (RWX_BLOCK, RWO_BLOCK, RWO_FILE, ROX_BLOCK)
_READ_WRITE = (RWX_BLOCK, RWX_FILE, RWO_BLOCK, RWO_FILE)

CAPABILITIES: dict[str, Capability] = {
    "kubevirt.io.hostpath-provisioner": Capability(_FILE_ONCE),
    "kubevirt.io.hostpath-provisioner/overlay": Capability(_FILE_MANY),
    # Ours has volumes that are files of a fixed size: they can be devices, and copies share their blocks.
    "kubevirt.io.hostpath-provisioner/image": Capability(_FILE_OR_BLOCK_ONCE, clone_strategy="csi-clone"),
    "kubevirt.io.hostpath-provisioner/overlay/image": Capability(
        (RWX_FILE, RWX_BLOCK, *_FILE_OR_BLOCK_ONCE), clone_strategy="csi-clone"
    ),
    "kubevirt.io/hostpath-provisioner": Capability(_FILE_ONCE),
    "k8s.io/minikube-hostpath": Capability(_FILE_ONCE),
    "nfs.csi.k8s.io": Capability(_FILE_MANY),
    "k8s-sigs.io/nfs-subdir-external-provisioner": Capability(_FILE_MANY),
    "kubernetes.io/rbd": Capability(_BLOCK_ALL),
    "rbd.csi.ceph.com": Capability(_BLOCK_ALL, clone_strategy="csi-clone"),
    "rook-ceph.rbd.csi.ceph.com": Capability(_BLOCK_ALL, clone_strategy="csi-clone", cron_format="snapshot"),
    "openshift-storage.rbd.csi.ceph.com": Capability(
        _BLOCK_ALL, clone_strategy="csi-clone", cron_format="snapshot"
    ),
    "cephfs.csi.ceph.com": Capability(_FILE_ALL, clone_strategy="csi-clone"),
    "rook-ceph.cephfs.csi.ceph.com": Capability(_FILE_ALL, clone_strategy="csi-clone"),
    "openshift-storage.cephfs.csi.ceph.com": Capability(_FILE_ALL, clone_strategy="csi-clone"),
    "linstor.csi.linbit.com": Capability(_EVERY_BUT_SHARED_FILE),
    "csi-unity.dellemc.com": Capability(_EVERY_BUT_SHARED_FILE),
    "csi-unity.dellemc.com/nfs": Capability(_FILE_EVERY),
    "csi-vxflexos.dellemc.com": Capability(_EVERY_BUT_SHARED_FILE, clone_strategy="csi-clone"),
    "csi-vxflexos.dellemc.com/nfs": Capability(_FILE_EVERY),
    "csi-isilon.dellemc.com": Capability(_FILE_EVERY, clone_strategy="csi-clone"),
    "csi-powermax.dellemc.com": Capability(_BLOCK_EVERY, clone_strategy="csi-clone"),
    "csi-powermax.dellemc.com/nfs": Capability(_FILE_EVERY),
    "csi-powerstore.dellemc.com": Capability(_BLOCK_EVERY, clone_strategy="copy"),
    "csi-powerstore.dellemc.com/nfs": Capability(_FILE_EVERY),
    "kubernetes.io/storageos": Capability(_FILE_ONCE),
    "storageos": Capability(_FILE_ONCE),
    "kubernetes.io/aws-ebs": Capability(_BLOCK_ONCE),
    "ebs.csi.aws.com": Capability(_BLOCK_ONCE),
    "ebs.csi.aws.com/io1": Capability(_BLOCK_ONCE, minimum_size="4Gi"),
    "ebs.csi.aws.com/io2": Capability(_BLOCK_ALL, minimum_size="4Gi"),
    "ebs.csi.aws.com/gp": Capability(_BLOCK_ONCE, minimum_size="1Gi"),
    "efs.csi.aws.com": Capability(_FILE_ALL),
    "kubernetes.io/azure-disk": Capability(_BLOCK_ONCE),
    "disk.csi.azure.com": Capability(_BLOCK_ONCE),
    "kubernetes.io/azure-file": Capability(_FILE_MANY),
    "file.csi.azure.com": Capability(_FILE_MANY),
    "kubernetes.io/gce-pd": Capability(_ONCE),
    "pd.csi.storage.gke.io": Capability(_ONCE, clone_strategy="snapshot", cron_format="snapshot"),
    "pd.csi.storage.gke.io/hyperdisk": Capability(
        _BLOCK_ALL, clone_strategy="snapshot", cron_format="snapshot", minimum_size="4Gi"
    ),
    "hspc.csi.hitachi.com": Capability(_BLOCK_ALL, clone_strategy="csi-clone", minimum_size="1Gi"),
    "csi.hpe.com": Capability(_BLOCK_ALL, clone_strategy="csi-clone"),
    "spectrumscale.csi.ibm.com": Capability(_FILE_ALL, clone_strategy="csi-clone"),
    "block.csi.ibm.com": Capability(_BLOCK_ALL, clone_strategy="csi-clone"),
    "vpc.block.csi.ibm.io": Capability(_ONCE, clone_strategy="copy"),
    "vpc.file.csi.ibm.io": Capability(_FILE_ALL, clone_strategy="snapshot", cron_format="snapshot"),
    "vpc.file.csi.ibm.io/dp2": Capability(
        _FILE_ALL, clone_strategy="snapshot", cron_format="snapshot", minimum_size="10Gi"
    ),
    "vpc.file.csi.ibm.io/dp2-rwo": Capability(
        _FILE_ONCE, clone_strategy="snapshot", cron_format="snapshot", minimum_size="10Gi"
    ),
    "vpc.file.csi.ibm.io/rfs": Capability(
        _FILE_ALL, clone_strategy="snapshot", cron_format="snapshot", minimum_size="1Gi"
    ),
    "vpc.file.csi.ibm.io/rfs-rwo": Capability(
        _FILE_ONCE, clone_strategy="snapshot", cron_format="snapshot", minimum_size="1Gi"
    ),
    "kubernetes.io/portworx-volume/nfs": Capability(_FILE_ALL),
    "kubernetes.io/portworx-volume": Capability(_READ_WRITE),
    "pxd.portworx.com/nfs": Capability(_FILE_ALL, clone_strategy="csi-clone"),
    "pxd.portworx.com": Capability(_READ_WRITE, clone_strategy="csi-clone"),
    "pxd.portworx.com/pure_block": Capability(_BLOCK_ALL, clone_strategy="csi-clone"),
    "pxd.portworx.com/pure_fa_file": Capability(_FILE_ALL, clone_strategy="csi-clone"),
    "csi.trident.netapp.io/ontap-nas": Capability(
        _FILE_ALL, clone_strategy="snapshot", cron_format="snapshot"
    ),
    "csi.trident.netapp.io/ontap-san": Capability(
        (RWX_BLOCK,), clone_strategy="snapshot", cron_format="snapshot"
    ),
    "csi.trident.netapp.io/gcnv-flex": Capability(
        _FILE_ALL, clone_strategy="snapshot", cron_format="snapshot", minimum_size="1Gi"
    ),
    "topolvm.cybozu.com": Capability(_ONCE, clone_strategy="copy"),
    "topolvm.io": Capability(_ONCE, clone_strategy="copy"),
    "cinder.csi.openstack.org": Capability(_ONCE),
    "manila.csi.openstack.org": Capability(_FILE_MANY),
    "csi.ovirt.org": Capability(_ONCE),
    "infinibox-csi-driver/iscsiorfibrechannel": Capability(_BLOCK_ALL, clone_strategy="csi-clone"),
    "infinibox-csi-driver/nvme": Capability(_BLOCK_ALL, clone_strategy="csi-clone"),
    "infinibox-csi-driver/nfs": Capability(_FILE_ALL, clone_strategy="csi-clone"),
    "csi.vsphere.vmware.com": Capability(_ONCE),
    "csi.vsphere.vmware.com/nfs": Capability((RWX_FILE, RWO_BLOCK, RWO_FILE)),
    "csi.huawei.com": Capability(_EVERY_BUT_SHARED_FILE),
    "csi.huawei.com/nfs": Capability(_FILE_EVERY),
    "kubesan.gitlab.io": Capability((RWX_BLOCK, ROX_BLOCK, RWO_BLOCK, RWO_FILE), clone_strategy="csi-clone"),
    "driver.longhorn.io": Capability(_BLOCK_ONCE),
    "driver.longhorn.io/migratable": Capability((RWX_BLOCK, RWO_BLOCK)),
    "driver.longhorn.io/nfs": Capability(_FILE_ALL),
    "driver.longhorn.io/fs": Capability(_FILE_ONCE),
    "blockvolume.csi.oraclecloud.com": Capability(_BLOCK_ALL, clone_strategy="csi-clone"),
    "csi.san.synology.com/iscsi": Capability(_BLOCK_ALL, clone_strategy="csi-clone", minimum_size="1Gi"),
    "csi.san.synology.com/nfs": Capability(_FILE_ALL, clone_strategy="csi-clone", minimum_size="1Gi"),
    "csi.san.synology.com/smb": Capability(_FILE_ALL, clone_strategy="csi-clone", minimum_size="1Gi"),
    "directpv-min-io": Capability(_FILE_ONCE),
    "xspc.csi.hpe.com": Capability((), minimum_size="1Gi"),
}
"""By provisioner, or provisioner and variant."""

UNSUPPORTED = frozenset(
    {
        "kubernetes.io/no-provisioner",
        "openshift-storage.ceph.rook.io/bucket",
        "openshift-storage.noobaa.io/obc",
        "rook-ceph.ceph.rook.io/bucket",
        "stork-snapshot",
    }
)
"""Provisioners that make no volumes for machines: nobody is told that their profiles are incomplete."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A row for classes whose `parameter` is one of `values`, or begins with or has `text`.

    Without values and text the parameter must be there; without a parameter the row is for all other classes.
    """

    key: str
    parameter: str = ""
    values: tuple[str, ...] = ()
    starts: str = ""
    has: tuple[str, ...] = ()
    and_also: tuple[str, str] | None = None

    def holds(self, parameters: Mapping[str, str]) -> bool:
        """Whether a class with `parameters` is of this variant."""
        if not self.parameter:
            return True
        value = parameters.get(self.parameter)
        if value is None and "" not in self.values:
            return False
        value = value or ""
        if self.and_also is not None and parameters.get(self.and_also[0]) != self.and_also[1]:
            return False
        if self.values:
            return value.lower() in self.values
        if self.has:
            parts = {part.strip() for part in value.replace(";", ",").split(",")}
            return parts.issuperset(self.has)
        return value.lower().startswith(self.starts)


_FS_TYPE = "csi.storage.k8s.io/fstype"
_IMAGES = ("volumeFormat", "image")
_NFS_OPTIONS = ("vers=3.0", "nolock")

VARIANTS: dict[str, tuple[Variant, ...]] = {
    "kubevirt.io.hostpath-provisioner": (
        Variant("/overlay/image", "overlayCSI", and_also=_IMAGES),
        Variant("/overlay", "overlayCSI"),
        Variant("/image", "volumeFormat", ("image",)),
        Variant(""),
    ),
    "kubernetes.io/portworx-volume": (
        Variant("/nfs", "sharedv4_mount_options", has=_NFS_OPTIONS),
        Variant(""),
    ),
    "pxd.portworx.com": (
        Variant("/pure_block", "backend", ("pure_block",)),
        Variant("/pure_fa_file", "backend", ("pure_fa_file",)),
        Variant("", "backend"),
        Variant("/nfs", "sharedv4_mount_options", has=_NFS_OPTIONS),
        Variant(""),
    ),
    "csi.trident.netapp.io": (
        Variant("/ontap-nas", "backendType", starts="ontap-nas"),
        Variant("/ontap-san", "backendType", starts="ontap-san"),
        Variant(
            "/gcnv-flex",
            "selector",
            has=("performance=flex",),
            and_also=("backendType", "google-cloud-netapp-volumes"),
        ),
    ),
    "infinibox-csi-driver": (
        Variant("/iscsiorfibrechannel", "storage_protocol", ("iscsi", "fc")),
        Variant("/nvme", "storage_protocol", ("nvme",)),
        Variant("/nfs", "storage_protocol", ("nfs", "nfs_treeq")),
    ),
    "csi.vsphere.vmware.com": (
        Variant("/nfs", _FS_TYPE, starts="nfs"),
        Variant(""),
    ),
    "csi-unity.dellemc.com": (Variant("/nfs", "protocol", ("nfs",)), Variant("")),
    "csi-powerstore.dellemc.com": (Variant("/nfs", _FS_TYPE, ("nfs",)), Variant("")),
    "csi-vxflexos.dellemc.com": (Variant("/nfs", _FS_TYPE, ("nfs",)), Variant("")),
    "csi-powermax.dellemc.com": (Variant("/nfs", _FS_TYPE, ("nfs",)), Variant("")),
    "csi.huawei.com": (Variant("/nfs", "protocol", ("nfs",)), Variant("")),
    "driver.longhorn.io": (
        Variant("/migratable", "migratable", ("true",)),
        Variant("/nfs", "nfsOptions"),
        Variant("/fs", "fsType"),
        Variant(""),
    ),
    "ebs.csi.aws.com": (
        Variant("/io1", "type", ("io1",)),
        Variant("/io2", "type", ("io2",)),
        Variant("/gp", "type", ("gp2", "gp3")),
        Variant(""),
    ),
    "pd.csi.storage.gke.io": (
        Variant("/hyperdisk", "type", ("hyperdisk-balanced", "hyperdisk-balanced-high-availability")),
        Variant(""),
    ),
    "csi.san.synology.com": (
        Variant("/iscsi", "protocol", ("iscsi", "")),
        Variant("/smb", "protocol", ("smb",)),
        Variant("/nfs", "protocol", ("nfs", "nfs_treeq")),
    ),
    "vpc.file.csi.ibm.io": (
        Variant("/rfs-rwo", "profile", ("rfs",), and_also=("vmState", "true")),
        Variant("/rfs", "profile", ("rfs",)),
        Variant("/dp2-rwo", "profile", ("dp2",), and_also=("vmState", "true")),
        Variant("/dp2", "profile", ("dp2",)),
        Variant(""),
    ),
}
"""By provisioner; the first that holds counts. Where none does, the class's parameters are not recognised."""


def key_of(provisioner: str, parameters: Mapping[str, str]) -> str | None:
    """The row of a class in `CAPABILITIES`; None for parameters that are not recognised."""
    variants = VARIANTS.get(provisioner)
    if variants is None:
        return provisioner
    return next((provisioner + each.key for each in variants if each.holds(parameters)), None)
