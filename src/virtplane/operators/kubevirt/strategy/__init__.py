"""What an installation consists of, as pure functions from the installation's parameters to objects.

`installation` gives everything in the order in which it is applied; the other modules each render one part.
"""
