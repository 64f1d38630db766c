"""The cluster's network above pods' links: services by nftables, names by a small resolver.

`rules` turns services and endpoints into an nftables ruleset (pure), `proxy` keeps it loaded on the machine
and in every node, `dns` and `resolver` answer names of cluster.local.
"""
