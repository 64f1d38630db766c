"""Worker pods as documents: pure functions of a claim, its annotations and the settings.

`worker` has what they share, `importer` and `upload` the two kinds, `scratch` the claim beside the one
that is filled.
"""
