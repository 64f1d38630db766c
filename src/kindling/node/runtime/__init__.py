"""The container runtime as the node agent sees it.

`containerd` speaks CRI over gRPC; `interface` has what it returns.
"""
