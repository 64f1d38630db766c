"""Command lines. Modules are imported lazily, so that ``--help`` is fast."""
