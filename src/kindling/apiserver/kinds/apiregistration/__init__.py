"""``apiregistration.k8s.io``: APIServices."""
