"""Copies of virtual machines: a snapshot, restored under another name, and both helpers removed."""
