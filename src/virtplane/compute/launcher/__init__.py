"""virt-launcher: the small supervisor inside each virtual machine's pod. Standard library only."""
