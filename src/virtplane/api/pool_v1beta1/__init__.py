"""pool.kubevirt.io/v1beta1: pools of machines."""
