"""Which launcher a profile's place means."""

from collections.abc import Mapping
from pathlib import Path

from marin_core.build import BuildOptions
from marin_core.errors import MarinError
from marin_core.jobs.kubernetes.place import KubernetesPlace
from marin_core.jobs.launcher import Launcher
from marin_core.jobs.local import LocalLauncher
from marin_core.store import Store
from marin_core.store.regions import same_region


def open_launcher(
    store: Store,
    state_folder: Path,
    options: BuildOptions,
    kubernetes: KubernetesPlace | None,
    variables: Mapping[str, str] | None = None,
) -> Launcher:
    """The cluster if the place is on one, else this machine. `variables` are for the environment of workers here; those
    of pods are in `kubernetes.env`.

    Raises:
        MarinError: the kubeconfig leads nowhere, the cluster's client library is not installed, or the store's bucket
            is in another region than the cluster.
    """
    if kubernetes is None:
        return LocalLauncher(store, state_folder, options, variables=variables)
    refuse_far_bucket(store, kubernetes.region)
    from marin_core.jobs.kubernetes.launcher import KubernetesLauncher

    return KubernetesLauncher(store, state_folder, options, kubernetes)


def refuse_far_bucket(store: Store, region: str) -> None:
    """Compare where the bucket really is with where the pods will run, before any of them starts.

    Raises:
        MarinError: every byte would cross regions.
    """
    if not store.root.startswith("gs://"):
        return
    from marin_core.store.gcs import bucket_location

    try:
        location = bucket_location(store.root)
    except MarinError:
        return  # who may write objects may not always ask for this; what the profile says was checked when it was read
    if location is not None and not same_region(location, region):
        raise MarinError(
            f"the bucket of store {store.root} is in {location}, but the pods run in {region}: every byte would cross "
            f"regions; use a bucket there, or node pools where the bucket is"
        )
