"""The operator of the hostpath provisioner: one object in, the CSI driver on its nodes out.

`controller` reconciles, with `removal` for the end; `status` reports. `driver` makes the pods of the driver,
`pools` what backs pools with claims, `rights`, `monitoring` and `product` the rest. `reviews` validates,
`manifests` is what ``virtplane install`` applies, and `operator` the component.
"""
