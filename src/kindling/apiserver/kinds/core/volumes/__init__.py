"""PersistentVolumes, PersistentVolumeClaims, and the volume sources which pods share with them."""
