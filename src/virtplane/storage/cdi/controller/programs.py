"""The programs of worker containers, where all of them are in the product's own image.

Upstream has an image for each program, whose entry point it is. The image here has many programs, so each
container names its own, unless the installation names an image for them. What runs beside a user's container
image needs no program of ours but busybox, which is linked statically and works in any image.
"""

from __future__ import annotations

from collections.abc import Mapping

from virtplane.storage.cdi.controller.crons import pollers
from virtplane.storage.cdi.controller.pods import cloner, importer, size_detection, upload
from virtplane.storage.cdi.controller.settings import Programs

IMPORTER = "virt-cdi-importer"
UPLOAD_SERVER = "virt-cdi-uploadserver"
CLONER = "virt-cdi-cloner"
POLLER = "cdi-source-update-poller"
SIZE_DETECTION = "cdi-image-size-detection"

_BUSYBOX = f"{importer.SHARED_PATH}/busybox"
"""By any other name it would look for an applet of that name."""
_SERVE = f"""\
set -eu
for folder in /sysroot /ostree; do
  if [ -d "$folder" ]; then
    echo "bootc image detected: the image holds a bootable operating system, not a disk" >&2
    exit 1
  fi
done
cd /disk
set -- *
if [ $# -ne 1 ] || [ ! -f "$1" ]; then
  echo "Invalid container image: /disk must hold one file" >&2
  exit 1
fi
{_BUSYBOX} env > {importer.ENVIRONMENT}
{_BUSYBOX} httpd -f -p 127.0.0.1:{importer.SERVER_PORT} -h /disk &
server=$!
printf %s "$1" > {importer.READY}.part
{_BUSYBOX} mv {importer.READY}.part {importer.READY}
until [ -e {importer.DONE} ]; do {_BUSYBOX} sleep 1; done
kill "$server"
"""
"""Serves the one file in ``/disk`` to the importer in the same pod until that is done."""


def chosen_programs(image: str, environment: Mapping[str, str]) -> Programs:
    """How workers are started: from the product's `image`, or those that upstream's variables name.

    The entry point of such an image is its program.
    """
    programs = own_programs(image)
    importer_image = environment.get("IMPORTER_IMAGE") or image
    cloner_image = environment.get("CLONER_IMAGE") or image
    # cdi-operator and cdi-deployment call it by two names; in the compact layout they are one process.
    server = environment.get("UPLOADSERVER_IMAGE") or environment.get("UPLOAD_SERVER_IMAGE") or image
    named = {cloner.CONTAINER: cloner_image, upload.CONTAINER: server}
    commands = {
        name: command
        for name, command in programs.commands.items()
        if named.get(name, importer_image) == image
    }
    return Programs(importer_image, cloner_image, server, commands=commands)


def own_programs(image: str) -> Programs:
    """How workers are started from the product's `image`."""
    copy = ["busybox", "cp", "/bin/busybox", _BUSYBOX]
    commands = {
        importer.CONTAINER: [IMPORTER],
        importer.COPY_CONTAINER: copy,
        importer.SERVER_CONTAINER: [_BUSYBOX, "sh", "-c", _SERVE],
        upload.CONTAINER: [UPLOAD_SERVER],
        cloner.CONTAINER: [CLONER],
        size_detection.CONTAINER: [SIZE_DETECTION],
        pollers.CONTAINER: [POLLER],
        pollers.IMAGE_CONTAINER: [_BUSYBOX, "true"],
    }
    return Programs(image, image, image, commands=commands)
