"""``apps``, and ReplicationControllers of the core group, which work like ReplicaSets."""
