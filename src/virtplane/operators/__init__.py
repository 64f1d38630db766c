"""The operators: a custom resource in, components and status out.

`kit` is what all of them are made of; each product has one folder beside it.
"""
