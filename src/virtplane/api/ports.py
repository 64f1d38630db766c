"""The ports on which components listen."""

from __future__ import annotations

API = 8443
"""virt-api: webhooks and subresources."""
OPERATOR_WEBHOOKS = 8444
HEALTH = 8445
"""Health and metrics of the control plane's processes."""
HANDLER_HEALTH = 8185
"""Health and metrics of virt-handler."""
HANDLER = 8186
"""virt-handler: what virt-api asks a node for (consoles, guest information, freezing, ...)."""
