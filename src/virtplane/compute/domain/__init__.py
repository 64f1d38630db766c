"""From VirtualMachineInstance to libvirt domain XML. Pure, no I/O."""
