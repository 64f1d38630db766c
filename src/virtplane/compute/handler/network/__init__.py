"""The pod's network, made fit for a guest: bridge, tap, address translation, DHCP lease.

``plan`` decides what it must look like, ``lease`` what the guest is told, ``rules`` renders nftables,
``bridge`` finds the steps by which a guest takes the pod's place (all pure); ``links`` looks and takes steps
in the pod's namespace, and ``setup`` makes a plan true there.
"""
