"""The node's HTTPS endpoint: logs, exec, attach, port-forward, statistics, for the API server only.

Served by aiohttp until a request leaves HTTP for SPDY or websockets; then bytes are pumped to and from the
container runtime's streaming server.
"""
