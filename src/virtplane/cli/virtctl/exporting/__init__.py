"""``vmexport``: exports of volumes, and their download."""
