"""virt-api: admission and the subresources API."""
