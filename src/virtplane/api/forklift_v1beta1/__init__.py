"""forklift.cdi.kubevirt.io/v1beta1: disks of oVirt and images of OpenStack that claims are filled with."""
