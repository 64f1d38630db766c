"""``coordination.k8s.io``: Leases."""
