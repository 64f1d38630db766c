"""The node's HTTPS endpoint: logs, exec, attach, port-forward, statistics, for the API server only.

A small HTTP/1.1 server of its own, because most of its requests leave HTTP for SPDY or websockets at once
and are then pumped, byte by byte, to the container runtime's streaming server.
"""
