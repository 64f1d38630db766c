"""Conditions and reasons of the KubeVirt object. Controllers keep theirs beside their code."""

from __future__ import annotations

# Conditions of the KubeVirt object.
CREATED = "Created"
SYNCHRONIZED = "Synchronized"

ALL_COMPONENTS_READY = "AllComponentsReady"
ALL_RESOURCES_CREATED = "AllResourcesCreated"
DEPLOYMENT_IN_PROGRESS = "DeploymentInProgress"
DEPLOYMENT_FAILED = "DeploymentFailed"
DELETION_IN_PROGRESS = "DeletionInProgress"
DELETION_FAILED = "DeletionFailedMessage"
UPDATE_IN_PROGRESS = "UpdateInProgress"
EXISTING_DEPLOYMENT = "ExistingDeployment"
