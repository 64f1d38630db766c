"""What the server tells about itself: groups, versions, resources, and their OpenAPI descriptions."""
