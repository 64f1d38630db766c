"""KubeVirt as a product of the operator kit."""

from __future__ import annotations

from virtplane.api import labels
from virtplane.operators.kit.product import Product
from virtplane.operators.kit.roles import Access

KUBEVIRT = Product(
    operator="virt-operator",
    component="kubevirt",
    label=labels.APP,
    digest_annotation="operator.kubevirt.io/digest",
    customizer_annotation=labels.CUSTOMIZER_IDENTIFIER,
    certificate_annotation=labels.CERTIFICATE_SECRET,
)
ACCESS = Access(KUBEVIRT)
