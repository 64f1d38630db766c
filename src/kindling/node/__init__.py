"""The node agent: pods over CRI, volumes, devices, probes, logs, streams."""
