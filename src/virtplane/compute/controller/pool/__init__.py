"""Pools of virtual machines: numbered VMs from one template."""
