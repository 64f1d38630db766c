"""Disks of machines: snapshots, restores and clones, as controllers that virt-controller runs."""
