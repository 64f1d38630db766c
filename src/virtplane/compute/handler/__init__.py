"""virt-handler: what happens to the virtual machines of one node."""
