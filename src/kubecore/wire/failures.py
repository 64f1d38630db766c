"""gRPC errors in Go's wording, as Kubernetes shows them in events and statuses."""

from __future__ import annotations


def rpc_text(code: str, details: str) -> str:
    """``rpc error: code = NotFound desc = ...``; `code` is Python's name of it (``NOT_FOUND``)."""
    name = "Canceled" if code == "CANCELLED" else "".join(part.capitalize() for part in code.split("_"))
    return f"rpc error: code = {name} desc = {details}"
