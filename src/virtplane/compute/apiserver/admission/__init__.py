"""virt-api's webhooks as pure functions: defaults (`mutation`) and rules (`validation`).

`review` is the only entry point that servers need; it finds the function by the webhook's path.
"""
