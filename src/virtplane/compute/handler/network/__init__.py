"""Prepares the pod's network for a guest: bridge, tap, NAT, DHCP lease.

``plan`` decides the wanted state, ``lease`` renders the DHCP lease, ``rules`` renders nftables, ``bridge``
finds the steps by which a guest takes the pod's place (all pure); ``links`` reads and changes links in the
pod's namespace, and ``setup`` applies a plan there.
"""
