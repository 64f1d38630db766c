"""The operators: a custom resource in, components and status out."""
