"""CDI's controllers (cdi-deployment): a folder each; decisions are pure, reconcilers act.

`config` keeps the one CDIConfig, `profiles` a StorageProfile for each storage class.
"""
