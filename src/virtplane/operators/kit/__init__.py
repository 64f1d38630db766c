"""What every operator is made of. It names no product: what differs between products is a parameter.

`product` says what tells one product's objects from another's, `roles` makes accounts and rights, `customize`
applies the user's patches. `apply` writes objects and `removal` takes them away, stage by stage
(`installation`). `certificates` issues and renews, `mirror` writes certificates to files, and `status` reports.
"""
