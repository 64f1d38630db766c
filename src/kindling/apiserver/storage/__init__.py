"""Durable storage: a journal on disk, and everything current in memory.

``store`` is what the rest of the server uses. A write gets the next revision, is queued for the journal,
and becomes visible (to readers, watchers and its own caller alike) once the journal says that it is
durable. ``journal`` defines what a journal does; ``sqlite`` and ``memory`` are the two there are.
"""
