"""Instance types and preferences applied to instances: pure functions shared by webhooks and controllers.

The instance type gives values that a machine may not set itself (`conflicts`); the preference fills what is
left open. `apply` puts both into an instance's spec, `requirements` says whether the result suffices.
"""
