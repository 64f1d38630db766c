"""``image-upload``: a local image into a DataVolume or claim."""
