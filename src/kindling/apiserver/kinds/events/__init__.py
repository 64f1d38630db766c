"""Events of ``events.k8s.io`` and of the core group: one storage, two spellings of the same fields."""
