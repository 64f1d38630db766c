"""The users that the product's processes are on their nodes, beside root and the guest's."""

from __future__ import annotations

COMPONENT_USER = 1001
"""Of components that touch nothing of their node, and of the image where a pod names no user."""
