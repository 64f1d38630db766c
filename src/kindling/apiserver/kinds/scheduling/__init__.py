"""``scheduling.k8s.io``: PriorityClasses."""
