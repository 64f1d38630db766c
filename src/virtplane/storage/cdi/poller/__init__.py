"""cdi-source-update-poller: asks a registry for the digest of an image, and tells the DataImportCron."""
