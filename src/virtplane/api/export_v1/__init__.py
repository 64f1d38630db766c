"""export.kubevirt.io/v1: fetching disks from outside."""
