"""The API server: HTTP, registry of resources, storage, watch, authentication, authorization, admission."""
