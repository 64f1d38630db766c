"""snapshot.kubevirt.io/v1beta1: snapshots and restores."""
