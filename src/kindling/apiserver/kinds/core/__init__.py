"""The core group (``v1``), a folder or module for each kind or family of kinds.

ReplicationControllers are in ``apps`` and Events in ``events``, beside the kinds whose rules they share.
"""
