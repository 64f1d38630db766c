"""Custom resource definitions: the kind itself, and the resources that definitions make.

``definition()`` is the built-in kind. ``controller.CustomResources`` follows the stored definitions: it
accepts their names, serves ``resources.resource_definitions`` of each, and cleans up behind deleted ones.
"""
