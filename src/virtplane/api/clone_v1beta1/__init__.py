"""clone.kubevirt.io/v1beta1: copies of machines."""
