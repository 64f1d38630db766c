"""A Kubernetes on one machine, made of real parts. Knows nothing about virtual machines."""
