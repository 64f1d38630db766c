"""Command lines. Imports are lazy: ``--help`` must be instant."""
