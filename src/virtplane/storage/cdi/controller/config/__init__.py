"""CDIConfig: the settings that hold, from the CDI object, the cluster and the defaults.

`decisions` says what the one object ``config`` should be, `reconciler` writes it.
"""
