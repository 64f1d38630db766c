"""VirtualMachineInstanceReplicaSets: keep a number of instances, and replace finished ones."""
