"""Facts that the operator ships: the common instance types and preferences (common-instancetypes)."""
