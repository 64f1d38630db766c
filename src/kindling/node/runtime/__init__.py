"""The container runtime as the node agent sees it.

`interface` is the CRI-shaped contract, `containerd` its implementation over gRPC. Whatever else runs pods
one day takes the place of the latter only.
"""
