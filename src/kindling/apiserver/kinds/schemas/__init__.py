"""The OpenAPI definitions of the built-in kinds: the data file, how it is made, and views of it.

Nothing is imported here: ``definitions`` also runs where the package is built, without a server's libraries.
"""
