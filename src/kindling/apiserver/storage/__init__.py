"""Durable storage: a journal on disk, and everything current in memory.

``store`` is what the rest of the server uses. A write gets the next revision, is queued for the journal,
and becomes visible (to readers, watchers and its own caller alike) once the journal says that it is
durable. ``journal`` defines what a journal does; ``sqlite`` and ``memory`` are the two there are.

Of the SQLite journal, ``layout`` knows what lies in the database and when it is believed, ``files`` what lies
beside it and how files become durable, ``backup`` how copies are taken and put back. ``compaction`` lets the
store forget history by age. docs/backup.md tells all this from the outside.
"""
