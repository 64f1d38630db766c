"""The pod's network, made fit for a guest: bridge, tap, address translation, DHCP lease.

``plan`` decides (pure), ``rules`` renders nftables, ``setup`` does it in the pod's namespace.
"""
