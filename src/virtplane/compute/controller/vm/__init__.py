"""Virtual machines: when their instance runs, and what users see of it.

Decisions are pure: ``strategy`` (start, stop), ``status`` (printable status, conditions), ``failures``
(back-off), ``restart`` (what needs a restart), ``starting`` (the instance made from the template),
``datavolumes``, ``snapshots``, ``liveupdate``, ``metadata``, ``next_request`` of ``memorydump``, and all of
``volumemigration`` but its ``sync``. They take structs; ``reading`` decodes what the caches hold as
documents, ``draft`` is the VM with the status that will be written. ``reconciler`` asks the decisions and
applies the answers.
"""
