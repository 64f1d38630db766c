"""virt-handler: runs the virtual machine instances of one node.

``controller`` reconciles each VirtualMachineInstance of the node with its ``machine``: the launcher
(``launcher``), what the node hands over to its container (``handover``), libvirt (``hypervisor``, over a
``daemonconnection``), the guest agent (``agentkeeper``) and its volumes and network (``storage``,
``network``). Pure functions in ``decisions`` and ``status`` decide what to do. ``node`` advertises the node
itself, ``server`` answers virt-api. Everything is found again after a restart: state lives in the API, in
libvirt, in the pods' folders and (``thaws``) in a folder of the node's own.
"""
