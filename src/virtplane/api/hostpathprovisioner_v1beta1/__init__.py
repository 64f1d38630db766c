"""hostpathprovisioner.kubevirt.io/v1beta1: storage in folders of nodes."""
