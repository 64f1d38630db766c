"""Extended resources through device plugins (v1beta1)."""
