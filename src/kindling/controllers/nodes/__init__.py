"""Controllers of nodes, and of the pods that nodes leave behind."""
