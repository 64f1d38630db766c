"""What "Kubernetes API" means, for both sides of the wire.

Object metadata, quantities, selectors, patches, schemas and expressions (no I/O), the asynchronous
client, and the runtime that controllers are written on. Knows nothing about any particular server or
product: it imports neither ``kindling`` nor ``virtplane``.
"""
