"""Discovery: groups, versions, resources, and OpenAPI documents."""
