"""The components that virt-operator installs, one module each, and the list of them."""

from virtplane.operators.kubevirt.strategy.components import (
    snapshot_controller,
    virt_api,
    virt_controller,
    virt_exportproxy,
    virt_handler,
)

INSTALLED = (
    virt_api.COMPONENT,
    virt_controller.COMPONENT,
    virt_handler.COMPONENT,
    virt_exportproxy.COMPONENT,
    snapshot_controller.COMPONENT,
)
