"""Resource usage of the node and its pods.

`cgroups` reads what the kernel counts, `disk` measures directories, `machine` reads the node's own figures;
`collector` puts them together for all pods, and `summary` and `prometheus` render the result (pure). Nothing
is collected until somebody asks.
"""
