"""Every API type; custom resource definitions are generated from these and from nothing else."""
