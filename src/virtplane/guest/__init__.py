"""The demo guest: a small Linux in a container disk, built from the distribution's own packages.

It is what ``virtplane demo`` boots and what the tests boot: a kernel and an initramfs with busybox, dropbear,
OpenSSH's SFTP server and the QEMU guest agent on one disk, which starts by BIOS and by UEFI. Equal packages
give equal bytes.

``variants`` says which kernels there are, ``packages`` fetches and unpacks, ``initramfs`` makes the root file
system, ``disk`` the bootable disk, ``oci`` the image archive, ``build`` puts them together. The guest's own
scripts are in ``rootfs/``.
"""
