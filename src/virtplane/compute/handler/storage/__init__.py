"""Volumes of a launcher pod, prepared as disks: container disks, cloud-init, scratch, files, devices."""
