"""Live migrations: a target launcher is made, the node agents move the guest, the objects tell how far.

``phases`` decides the next phase, ``policies`` the settings of a migration, ``target`` renders the launcher
on the other side; ``reconciler`` applies them, ``evacuation`` makes migrations for nodes that are drained.
"""
