"""cdi.kubevirt.io/v1beta1: volumes filled with content. A module for each kind.

``data_volume_template`` has the part of DataVolumes that KubeVirt's machines embed; ``upload`` is the group
upload.cdi.kubevirt.io. `virtplane.api.cdi_crds` says how the kinds are served.
"""
