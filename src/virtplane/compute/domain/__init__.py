"""From VirtualMachineInstance to libvirt domain XML. Pure functions, no I/O.

``document.render`` is the way in; each device or section has a module of its own. What only the node knows
(paths of disks, the tap's MAC and MTU, whether KVM works) arrives in ``context.DomainContext``.
"""
