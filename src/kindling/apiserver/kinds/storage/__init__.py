"""``storage.k8s.io``: classes, CSI drivers and nodes, capacities, VolumeAttachments."""
