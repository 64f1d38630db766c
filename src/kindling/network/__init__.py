"""Pod network configuration and services (nftables)."""
