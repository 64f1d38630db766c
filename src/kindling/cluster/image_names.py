"""The names of the images that every node has from the start (see `kindling.cluster.images`)."""

SANDBOX_IMAGE = "kindling.local/sandbox:latest"
BUSYBOX_IMAGE = "kindling.local/busybox:1"
HOST_REPOSITORY = "kindling.local/host"
HOST_IMAGE = f"{HOST_REPOSITORY}:latest"
