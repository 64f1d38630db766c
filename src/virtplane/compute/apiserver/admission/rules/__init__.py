"""Rules on the spec of an instance, one module for each part of it.

`spec.spec_causes` applies all of them in the order in which users of KubeVirt see their messages. Every rule
takes the path under which the spec lies (`spec` of an instance, `spec.template.spec` of a machine), because
messages name full paths. Some paths look odd (a part named twice); clients match on them, so they stay.
"""
