"""Images of a node: pulling by policy with back-off, and the host image's binds."""
