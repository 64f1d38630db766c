"""virt-handler: what happens to the virtual machines of one node.

``controller`` reconciles each VirtualMachineInstance of the node with its ``machine``: the launcher
(``launcher``), the libvirt connection (``hypervisor``) and what was prepared for it (``storage``,
``network``). What should be is decided by pure functions in ``decisions`` and ``status``. ``node`` advertises
the node itself, ``server`` answers virt-api. Everything is found again after a restart: state lives in the
API, in libvirt, in the pods' folders and (``thaws``) in a folder of the node's own.
"""
