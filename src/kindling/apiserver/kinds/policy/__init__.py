"""``policy``: PodDisruptionBudgets."""
