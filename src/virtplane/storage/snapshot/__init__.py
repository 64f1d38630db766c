"""Snapshots of virtual machines. They are taken only where the cluster serves VolumeSnapshots."""
