"""DataVolumes: a claim is made for each, filled by the other controllers, and its state told to the user.

`flows` says what differs between imports, uploads and claims that others fill; `documents` is what is made
for a DataVolume; `decisions` says its phase, `conditions` its conditions; `reconciler` acts, `status` writes;
`concerned` says which DataVolumes a change of something else is about.
"""
