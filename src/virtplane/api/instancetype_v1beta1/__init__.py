"""instancetype.kubevirt.io/v1beta1: instance types and preferences."""
