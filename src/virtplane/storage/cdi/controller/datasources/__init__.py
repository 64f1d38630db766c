"""DataSources: what they lead to, and whether it can be used.

`decisions` says what a DataSource's status and labels should be, `reconciler` writes them.
"""
