"""SSH keys and passwords brought into guests."""

from __future__ import annotations

from typing import Annotated

from virtplane.api.markers import REQUIRED, SET, ApiStruct


class ConfigDriveSSHPublicKeyAccessCredentialPropagation(ApiStruct, kw_only=True):
    """Keys go into the guest by the cloud-init config drive."""


class NoCloudSSHPublicKeyAccessCredentialPropagation(ApiStruct, kw_only=True):
    """Keys go into the guest by the cloud-init NoCloud volume."""


class QemuGuestAgentSSHPublicKeyAccessCredentialPropagation(ApiStruct, kw_only=True):
    """The guest agent writes the keys of the listed users."""

    users: Annotated[tuple[str, ...], SET, REQUIRED] = ()


class SSHPublicKeyAccessCredentialPropagationMethod(ApiStruct, kw_only=True):
    """How keys get into the guest; exactly one member is set."""

    config_drive: ConfigDriveSSHPublicKeyAccessCredentialPropagation | None = None
    no_cloud: NoCloudSSHPublicKeyAccessCredentialPropagation | None = None
    qemu_guest_agent: QemuGuestAgentSSHPublicKeyAccessCredentialPropagation | None = None


class AccessCredentialSecretSource(ApiStruct, kw_only=True):
    """The secret whose keys hold the credentials."""

    secret_name: str


class SSHPublicKeyAccessCredentialSource(ApiStruct, kw_only=True):
    """Where keys come from."""

    secret: AccessCredentialSecretSource | None = None


class SSHPublicKeyAccessCredential(ApiStruct, kw_only=True):
    """SSH public keys: whence they come and how they get into the guest."""

    propagation_method: SSHPublicKeyAccessCredentialPropagationMethod
    source: SSHPublicKeyAccessCredentialSource


class QemuGuestAgentUserPasswordAccessCredentialPropagation(ApiStruct, kw_only=True):
    """The guest agent sets the passwords."""


class UserPasswordAccessCredentialPropagationMethod(ApiStruct, kw_only=True):
    """How passwords get into the guest."""

    qemu_guest_agent: QemuGuestAgentUserPasswordAccessCredentialPropagation | None = None


class UserPasswordAccessCredentialSource(ApiStruct, kw_only=True):
    """Where passwords come from."""

    secret: AccessCredentialSecretSource | None = None


class UserPasswordAccessCredential(ApiStruct, kw_only=True):
    """User passwords: whence they come and how they get into the guest."""

    propagation_method: UserPasswordAccessCredentialPropagationMethod
    source: UserPasswordAccessCredentialSource


class AccessCredential(ApiStruct, kw_only=True):
    """Credentials brought into the guest; exactly one member is set."""

    ssh_public_key: SSHPublicKeyAccessCredential | None = None
    user_password: UserPasswordAccessCredential | None = None
