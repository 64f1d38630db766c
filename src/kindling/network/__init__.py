"""The cluster's network above pods' links: services and policies by nftables, names by a small resolver.

Tables are values (`tables`), of which only what changed is loaded (`nftables`).

`services` says what services mean, `rules` makes a table of it, `proxy` keeps it loaded on the machine and
in every node, with routes to external addresses (`external`, `external_routes`), health checks
(`health_checks`) and its own state (`proxy_status`), both served by `node_servers`; `flows` has UDP clients
choose anew where the rules lead elsewhere.

`policies` says what network policies mean (of `policy_objects`), `policy_readings` what those mean that
cannot be used, `policy_rules` makes a table of it, and `policy_enforcer` keeps it loaded, in the node agent.

`pod_filter` and `bridge_ports` are for the links of pods, `machine_rules` protects the machine. `dns` and
`resolver` answer names of cluster.local. `ranges` computes with addresses.
"""
