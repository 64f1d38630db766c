"""``resource.k8s.io``: device classes, claims of devices and their templates, and slices of device pools."""
