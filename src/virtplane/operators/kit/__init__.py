"""What every operator is made of. It names no product: what differs between products is a parameter.

`product` says what tells one product's objects from another's. `roles`, `workloads` and `webhooks` make
objects, `customize` applies the user's patches to them; `apply` writes them and `removal` takes them away,
stage by stage (`installation`). `certificates` issues and renews, `mirror` writes certificates to files, and
`status` reports.
"""
