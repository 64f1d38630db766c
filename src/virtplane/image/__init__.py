"""The container image of the product: what is in it, and how it is put together.

Three layers, from what changes least to what changes most: the distribution's programs, the Python packages
of ``requirements.lock``, and the product. Nothing is run out of the image while it is built, so neither root
nor a container runtime is needed.
"""
