"""migrations.kubevirt.io/v1alpha1: migration policies."""
