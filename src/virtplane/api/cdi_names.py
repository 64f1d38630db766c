"""The names of what CDI makes: of its own objects, and of those for a claim or a DataVolume."""

from __future__ import annotations

from kubecore.objects.generated_names import bounded
from kubecore.objects.names import LABEL_MAX, SUBDOMAIN_MAX

NAMESPACE = "cdi"
"""Where CDI is installed unless it is told otherwise."""
CONFIG = "config"
"""The only CDIConfig."""

# Deployments, services and service accounts.
OPERATOR = "cdi-operator"
CONTROLLER = "cdi-deployment"
CONTROLLER_ACCOUNT = "cdi-sa"
API_SERVER = "cdi-apiserver"
API_SERVICE = "cdi-api"
UPLOAD_PROXY = "cdi-uploadproxy"
CRON_ACCOUNT = "cdi-cronjob"
METRICS_SERVICE = "cdi-prometheus-metrics"
METRICS_READER = "cdi-metrics-reader"
METRICS_READER_TOKEN = "cdi-metrics-reader-token"
LEADER_ELECTION = "cdi-controller-leader-election-helper"

# Secrets and config maps in CDI's own namespace.
SIGNING_KEY = "cdi-api-signing-key"
"""The key that tokens are signed with: ``id_rsa`` and ``id_rsa.pub``."""
SIGNING_KEY_PRIVATE = "id_rsa"
SIGNING_KEY_PUBLIC = "id_rsa.pub"
API_SERVER_SIGNER = "cdi-apiserver-signer"
API_SERVER_BUNDLE = "cdi-apiserver-signer-bundle"
API_SERVER_CERTIFICATE = "cdi-apiserver-server-cert"
UPLOAD_PROXY_SIGNER = "cdi-uploadproxy-signer"
UPLOAD_PROXY_BUNDLE = "cdi-uploadproxy-signer-bundle"
UPLOAD_PROXY_CERTIFICATE = "cdi-uploadproxy-server-cert"
UPLOAD_SERVER_SIGNER = "cdi-uploadserver-signer"
UPLOAD_SERVER_BUNDLE = "cdi-uploadserver-signer-bundle"
UPLOAD_CLIENT_SIGNER = "cdi-uploadserver-client-signer"
UPLOAD_CLIENT_BUNDLE = "cdi-uploadserver-client-signer-bundle"
UPLOAD_CLIENT_CERTIFICATE = "cdi-uploadserver-client-cert"
UPLOAD_CLIENT_NAME = "client.upload-server.cdi.kubevirt.io"
"""The common name by which upload servers know the upload proxy."""
VDDK_CONFIG_MAP = "v2v-vmware"
VDDK_IMAGE_KEY = "vddk-init-image"

# Who issues tokens.
API_SERVER_ISSUER = "cdi-apiserver"
CONTROLLER_ISSUER = "cdi-deployment"


def name(base: str, suffix: str, longest: int = SUBDOMAIN_MAX) -> str:
    """``base-suffix``; where that is too long, with a hash in the place of what is left out."""
    return bounded(base, suffix, longest)


def label_of(text: str) -> str:
    """A name that fits labels and services."""
    dashed = text.replace(".", "-")
    return dashed if len(dashed) <= LABEL_MAX else bounded(dashed, "cdi", LABEL_MAX)


def importer_pod(claim: str) -> str:
    """The pod that imports into a claim."""
    return name("importer", claim)


def checkpoint_pod(claim: str, checkpoint: str) -> str:
    """The pod that imports one stage of a multi-stage import."""
    return name(importer_pod(claim), f"checkpoint-{checkpoint}")


def scratch_claim(claim: str) -> str:
    """The claim for what an importer or upload server keeps meanwhile."""
    return name(claim, "scratch")


def upload_pod(claim: str) -> str:
    """The pod that takes what is uploaded into a claim, and the secret of its certificate."""
    return name("cdi-upload", claim)


def upload_service(claim: str) -> str:
    """The service of a claim's upload pod."""
    return label_of(upload_pod(claim))


def clone_source_pod(target_uid: str) -> str:
    """The pod that sends the source of a clone, and the secret of its certificate."""
    return name(target_uid, "source-pod")


def size_detection_pod(source_uid: str) -> str:
    """The pod that reads the virtual size of the image in a claim."""
    return name("size-detection", source_uid)


def prime_claim(target_uid: str) -> str:
    """The claim that is filled in the place of a target."""
    return f"prime-{target_uid}"


def import_source(data_volume_uid: str) -> str:
    """The VolumeImportSource of a DataVolume."""
    return f"volume-import-source-{data_volume_uid}"


def upload_source(data_volume_uid: str) -> str:
    """The VolumeUploadSource of a DataVolume."""
    return f"volume-upload-source-{data_volume_uid}"


def clone_source(data_volume_uid: str) -> str:
    """The VolumeCloneSource of a DataVolume; it is in the namespace of the source."""
    return f"volume-clone-source-{data_volume_uid}"


def temporary_claim(target_uid: str) -> str:
    """The claim that is made of a source, until its volume belongs to the target."""
    return f"tmp-pvc-{target_uid}"


def temporary_snapshot(target_uid: str) -> str:
    """The snapshot of a source that the target is made of."""
    return f"tmp-snapshot-{target_uid}"


def temporary_source_claim(target_uid: str) -> str:
    """The claim that is made of a snapshot so that pods can copy it."""
    return f"tmp-source-pvc-{target_uid}"


def preparation_pod(target_uid: str) -> str:
    """The pod that has a claim bound and grown."""
    return f"prep-{target_uid}"


def host_assisted_source_claim(data_volume_uid: str) -> str:
    """The claim that is made of a snapshot where the class has no CSI driver."""
    return f"{data_volume_uid}-host-assisted-source-pvc"


def proxy_config_map(claim: str) -> str:
    """The copy, for an importer pod, of the authorities that the proxy is verified by."""
    return name("import-proxy-cm", claim)


def transfer_of_claim(transfer_uid: str) -> str:
    """The transfer of the claim of a DataVolume that is transferred."""
    return f"pvc-transfer-{transfer_uid}"


def cron_job(cron: str, cron_uid: str) -> str:
    """The CronJob, in CDI's namespace, that polls the source of a DataImportCron."""
    return name(cron, cron_uid[:8])


def initial_job(cron: str, cron_uid: str) -> str:
    """The Job that polls it for the first time, before its schedule says so."""
    return name("initial-job", cron_job(cron, cron_uid))


def poller_pod(cron: str, cron_uid: str) -> str:
    """The pod by which a node pulls the image of a DataImportCron, so that its digest is known."""
    return name(f"poller-{cron}", cron_uid[:8])


def cron_import(data_source: str, digest: str) -> str:
    """The DataVolume, claim and snapshot of a digest without its prefix."""
    return name(data_source, digest[:12])
