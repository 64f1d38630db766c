"""Snapshots of virtual machines, for clusters that serve VolumeSnapshots."""
