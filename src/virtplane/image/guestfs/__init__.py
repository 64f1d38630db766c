"""The container image of ``virtctl guestfs``: libguestfs of this machine's own distribution.

`build` makes it in three steps. The packages are fetched and installed into a folder, as for the Debian
disk (`virtplane.image.debian`). There libguestfs makes its appliance, the small system that it starts beside
a disk (`tree`): pods could not, for they have no kernel. The folder becomes the image.
"""
