"""A Debian disk for virtual machines, made of the packages of this machine's own distribution.

`build` makes it in four steps: the packages are fetched by the machine's apt (`packages`), and installed into
a folder (`tree`); it becomes the root file system of a disk (`disk`) that starts by BIOS and UEFI (`boot`).
Nothing of this machine is in the disk: neither its apt sources nor names, addresses or keys.
"""
