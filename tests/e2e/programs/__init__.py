"""Real programs on a cluster of three nodes. It goes with the last of these tests: a package is a scope."""
