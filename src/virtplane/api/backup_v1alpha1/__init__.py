"""backup.kubevirt.io/v1alpha1: backups of machines."""
