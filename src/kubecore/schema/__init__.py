"""Structural schemas: pruning, defaulting, validation with Kubernetes' wording. Pure, no I/O."""
