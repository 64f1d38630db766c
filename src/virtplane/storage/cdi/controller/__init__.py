"""CDI's controllers (cdi-deployment): a folder each; decisions are pure, reconcilers act.

`profiles` keeps a StorageProfile for each storage class.
"""
