"""The ports on which components listen."""

from __future__ import annotations

API = 8443
"""virt-api: webhooks, subresources and metrics."""
OPERATOR_WEBHOOKS = 8444
HOSTPATH_WEBHOOKS = 9443
HEALTH = 8445
"""Health and metrics of the control plane's processes; of virt-api health."""
COMPONENT_HEALTH = 8443
"""Health and metrics of virt-handler, virt-controller and virt-operator, each in a pod of its own."""
HANDLER = 8186
"""virt-handler: what virt-api asks a node for (consoles, guest information, freezing, ...)."""
CDI_API = 8446
"""cdi-apiserver: webhooks and upload tokens. Other than virt-api's, whose process it shares sometimes."""
CDI_UPLOAD_PROXY = 8447
"""cdi-uploadproxy: what clients upload."""
