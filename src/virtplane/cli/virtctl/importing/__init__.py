"""``import``: a machine from a disk image, an OVA or a URL."""
