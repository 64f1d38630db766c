"""Virtual machines: when their instance runs, and what users see of it.

Decisions are pure: ``strategy`` (start, stop), ``status`` (printable status, conditions), ``failures``
(back-off), ``restart`` (what needs a restart), ``starting`` (the instance made from the template),
``datavolumes``, ``liveupdate``, ``requests``. ``reconciler`` reads caches, asks them and applies the answers.
"""
