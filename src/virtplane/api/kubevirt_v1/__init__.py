"""kubevirt.io/v1: machines, instances, migrations and the installation itself.

One module for each part of a guest; `vm` and `vmi` are the roots.
"""
