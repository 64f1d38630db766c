"""Real programs on a cluster of three nodes, which goes with the last of these tests: a package is a scope."""
