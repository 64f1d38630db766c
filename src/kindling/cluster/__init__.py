"""Bring-up, certificates, supervision and teardown of a cluster in one state directory."""
