"""``node.k8s.io``: RuntimeClasses. Nodes themselves are in ``core``."""
