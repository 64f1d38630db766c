"""Restores of virtual machines from snapshots: claims from VolumeSnapshots, and the VM's former spec."""
