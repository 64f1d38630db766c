"""cdi.kubevirt.io/v1beta1: volumes filled with content."""
