"""plugin.kubevirt.io/v1alpha1: hooks into the life of guests."""
