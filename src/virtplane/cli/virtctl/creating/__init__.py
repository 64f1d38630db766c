"""``create``: manifests on standard output."""
