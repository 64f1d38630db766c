"""The container image of the product: its content and its build.

It has three layers, ordered by how often they change: the distribution's programs, the Python packages of
``requirements.lock``, and the product. The build runs no program of the image, so it needs neither root nor a
container runtime.
"""
