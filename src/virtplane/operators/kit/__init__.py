"""The library of all operators. It knows no product: differences between products are parameters.

`product` has the labels and annotations that identify a product's objects. `roles`, `workloads` and
`webhooks` make objects, `customize` applies the user's patches to them; `apply` writes them and `removal`
deletes them, in stages (`installation`); `optional` looks after those of kinds that only some clusters serve.
`certificates` issues and renews, `mirror` writes certificates to
files, and `status` reports; `heartbeats` does so as the operators of storage do.
"""
