"""A made-up product: what operators share must not depend on which product they install."""

from __future__ import annotations

from virtplane.operators.kit.product import Product

BAKERY = Product(
    operator="bakery-operator",
    component="bread",
    label="bakery.example",
    digest_annotation="bakery.example/wanted",
    customizer_annotation="bakery.example/patches",
    certificate_annotation="bakery.example/certificate",
)
