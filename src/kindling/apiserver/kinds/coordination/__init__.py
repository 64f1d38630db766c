"""Leases (``coordination.k8s.io``), PriorityClasses (``scheduling``), RuntimeClasses (``node``)."""
