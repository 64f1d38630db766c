"""Snapshots of virtual machines and restoring them.

``decisions`` and ``restoring`` are pure; ``snapshots`` and ``restores`` apply them. They run only where the
cluster serves VolumeSnapshots.
"""
