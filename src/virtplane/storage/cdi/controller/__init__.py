"""CDI's controllers (cdi-deployment): a folder each; decisions are pure, reconcilers act.

`config` keeps the one CDIConfig, `profiles` a StorageProfile for each storage class. `datasources` says of
DataSources whether they can be used, `crons` imports what DataImportCrons name whenever it has changed,
`transfers` moves claims and DataVolumes by ObjectTransfers.

`conditions`, `labels` and `deletion` are what they share.
"""
