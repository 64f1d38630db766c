"""DataSources: what they lead to, and whether it can be used.

`decisions` says what a DataSource's status and labels should be, `reconciler` writes them; `status` is also
for the cron that has a DataSource lead to other content: no moment shows that with the condition of the old.
"""
