"""The operators: each turns a custom resource into components and a status. `kit` is their common library;
each product has a package next to it.
"""
