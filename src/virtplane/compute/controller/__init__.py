"""virt-controller: VirtualMachine and VirtualMachineInstance reconcilers."""
