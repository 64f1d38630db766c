"""CDI's controllers (cdi-deployment): a folder each; decisions are pure, reconcilers act.

`config` keeps the one CDIConfig, `profiles` a StorageProfile for each storage class. `datavolume` makes the
claims of DataVolumes, `populators` fill claims that name a source, `workers` run the pods that do it, which
`pods` renders. `datasources` says of DataSources whether they can be used, `crons` imports what
DataImportCrons name whenever it has changed, `transfers` moves claims and DataVolumes by ObjectTransfers.

`settings` is what they read of the installation, `sources` the annotations of sources, `claims` reads those
of claims, `progress` asks workers how far they are, `assembly` puts the controllers together. `conditions`,
`labels` and `deletion` are what they share.
"""
