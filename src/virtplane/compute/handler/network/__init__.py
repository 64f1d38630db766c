"""Prepares the pod's network for a guest: bridge, tap, NAT, DHCP lease.

``plan`` decides the wanted state, ``lease`` renders the DHCP lease, ``rules`` renders nftables, ``bridge``
finds the steps by which a guest takes the pod's place, ``cards`` what a running guest lacks (all pure);
``links`` reads and changes links in the pod's namespace, ``setup`` applies a plan there, and ``keeper``
brings a guest's interfaces to what its instance says.
"""
