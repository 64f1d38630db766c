"""ResourceQuotas and LimitRanges."""
