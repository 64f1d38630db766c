"""SSH keys and passwords brought into guests."""

from __future__ import annotations

from typing import Annotated

from virtplane.api.markers import REQUIRED, SET, ApiStruct, describe


class ConfigDriveSSHPublicKeyAccessCredentialPropagation(ApiStruct, kw_only=True):
    """Keys go into the guest's config drive, which must be among its volumes."""


class NoCloudSSHPublicKeyAccessCredentialPropagation(ApiStruct, kw_only=True):
    """Keys go into the guest's cloud-init NoCloud disk, which must be among its volumes."""


class QemuGuestAgentSSHPublicKeyAccessCredentialPropagation(ApiStruct, kw_only=True):
    """The guest agent writes the keys, also when the secret changes."""

    users: Annotated[
        tuple[str, ...], describe("Users in the guest who get the keys; at least one."), SET, REQUIRED
    ] = ()


class SSHPublicKeyAccessCredentialPropagationMethod(ApiStruct, kw_only=True):
    """How keys get into the guest; exactly one member is set."""

    config_drive: ConfigDriveSSHPublicKeyAccessCredentialPropagation | None = None
    no_cloud: NoCloudSSHPublicKeyAccessCredentialPropagation | None = None
    qemu_guest_agent: QemuGuestAgentSSHPublicKeyAccessCredentialPropagation | None = None


class AccessCredentialSecretSource(ApiStruct, kw_only=True):
    """A secret of the same namespace."""

    secret_name: Annotated[str, describe("Its name.")]


class SSHPublicKeyAccessCredentialSource(ApiStruct, kw_only=True):
    """Where keys come from."""

    secret: Annotated[
        AccessCredentialSecretSource | None,
        describe("A secret of the same namespace whose values hold public keys, one a line."),
    ] = None


class SSHPublicKeyAccessCredential(ApiStruct, kw_only=True):
    """SSH public keys: where they come from and how they get into the guest."""

    propagation_method: SSHPublicKeyAccessCredentialPropagationMethod
    source: SSHPublicKeyAccessCredentialSource


class QemuGuestAgentUserPasswordAccessCredentialPropagation(ApiStruct, kw_only=True):
    """The guest agent sets the passwords, also when the secret changes."""


class UserPasswordAccessCredentialPropagationMethod(ApiStruct, kw_only=True):
    """How passwords get into the guest."""

    qemu_guest_agent: QemuGuestAgentUserPasswordAccessCredentialPropagation | None = None


class UserPasswordAccessCredentialSource(ApiStruct, kw_only=True):
    """Where passwords come from."""

    secret: Annotated[
        AccessCredentialSecretSource | None,
        describe(
            "A secret of the same namespace: its keys are users in the guest, its values their passwords."
        ),
    ] = None


class UserPasswordAccessCredential(ApiStruct, kw_only=True):
    """User passwords: where they come from and how they get into the guest."""

    propagation_method: UserPasswordAccessCredentialPropagationMethod
    source: UserPasswordAccessCredentialSource


class AccessCredential(ApiStruct, kw_only=True):
    """Credentials brought into the guest; exactly one member is set."""

    ssh_public_key: SSHPublicKeyAccessCredential | None = None
    user_password: UserPasswordAccessCredential | None = None
