"""Images that are built of this machine's packages.

The container image of the product (`distribution`, `system`, `product`) has three layers, ordered by how
often they change: the distribution's programs, the Python packages of ``requirements.lock``, and the product.
Its build runs no program of the image, so it needs neither root nor a container runtime.

The Debian disk for machines (`debian`) and the image of ``virtctl guestfs`` (`guestfs`) are installed by
root, once, and kept (`keeping`).
"""
