"""The operator of the hostpath provisioner: one object in, the CSI driver on its nodes out.

`controller` reconciles, `poolcontroller` for pools; `status` reports. `driver` makes the pods of the driver,
`pools` what backs pools with claims; `rights`, `policies`, `cluster_objects` the rest. `reviews` validates,
`manifests` is what ``virtplane install`` applies, and `operator` the component.
"""
