"""Where things are on this machine: the one place that reads MARIN_… variables, and those of W&B that say how runs
are tracked, and decides their defaults.

`DAGSTER_HOME` and `DAGSTER_MODULE_NAME` get their defaults here too. A `.pth` file of this distribution calls
`set_dagster_defaults` at the start of every Python of the environment, because Dagster's command line reads the
module's name before it reads a `.env` file. What the user exported always wins.
"""

import os
import shutil
import socket
import sys
import warnings
from pathlib import Path

from marin_core.errors import MarinError

CODE_LOCATION = "marin_assets.definitions"
# Options that tell a `dagster` command which code to load; then the default must stay out of its way.
_TARGET_OPTIONS = (
    "-m",
    "-f",
    "-w",
    "-p",
    "-d",
    "-a",
    "--module-name",
    "--python-file",
    "--workspace",
    "--package-name",
    "--grpc-port",
)
# The last two are wandb's older words for two of the others.
_WANDB_MODES = {"online": "online", "offline": "offline", "disabled": "off", "run": "online", "dryrun": "offline"}


def repository() -> Path:
    """The checkout that this code runs from."""
    return Path(__file__).resolve().parents[1]


def dagster_home() -> Path:
    """DAGSTER_HOME, by default `.dagster/` in the repository."""
    return Path(os.environ.get("DAGSTER_HOME") or repository() / ".dagster")


def state_folder() -> Path:
    """What this machine keeps beside DAGSTER_HOME: the default store, worker logs, the compilation cache."""
    return Path(os.environ.get("MARIN_STATE") or dagster_home().parent / ".marin")


def profile_name() -> str:
    """MARIN_PROFILE: a name among `profiles/*.toml`, or the path of a TOML file. Default `laptop`."""
    return os.environ.get("MARIN_PROFILE") or "laptop"


def store_root() -> str | None:
    """MARIN_STORE: a path or URL that replaces the profile's store."""
    return os.environ.get("MARIN_STORE") or None


def max_flops() -> float | None:
    """MARIN_MAX_FLOPS: training FLOPs, like 6e21 or inf, that replace the `max_flops` of the profile's place.

    Raises:
        MarinError: it is not a positive number.
    """
    text = os.environ.get("MARIN_MAX_FLOPS")
    if not text:
        return None
    try:
        flops = float(text)
    except ValueError:
        flops = 0.0
    if flops > 0:
        return flops
    raise MarinError(f"MARIN_MAX_FLOPS is {text!r}, which is no positive number of FLOPs; set it to one like 6e21")


def runs_in_a_pod() -> bool:
    """Whether this process is in a pod of a Kubernetes cluster, which sets this variable in every container."""
    return "KUBERNETES_SERVICE_HOST" in os.environ


def pod_name() -> str:
    """MARIN_POD: the pod that a worker runs in; elsewhere the host's name."""
    return os.environ.get("MARIN_POD") or socket.gethostname()


def slice_index() -> int:
    """MARIN_SLICE: which of a job's slices this pod belongs to."""
    return int(os.environ.get("MARIN_SLICE") or 0)


def completion_index() -> int:
    """JOB_COMPLETION_INDEX, which Kubernetes sets in the pods of an Indexed Job: which of them this is."""
    return int(os.environ.get("JOB_COMPLETION_INDEX") or 0)


def image() -> str | None:
    """MARIN_IMAGE: the container image that replaces that of the profile's cluster."""
    return os.environ.get("MARIN_IMAGE") or None


def commit() -> str | None:
    """MARIN_COMMIT: the commit that an image was built from."""
    return os.environ.get("MARIN_COMMIT") or None


def code_url() -> str | None:
    """MARIN_CODE_URL: the address of the repository at GitHub or GitLab, where the web UI links to the code; by default
    the checkout's remote `origin`, if it is there."""
    return os.environ.get("MARIN_CODE_URL") or None


def tracking() -> str | None:
    """WANDB_MODE, in the words of a profile's `tracking`: `online`, `offline` or `off`; None if it is not set.

    Raises:
        MarinError: it is none of wandb's modes.
    """
    mode = os.environ.get("WANDB_MODE")
    if not mode:
        return None
    if mode not in _WANDB_MODES:
        raise MarinError(f"WANDB_MODE is {mode!r}; set it to online, offline or disabled")
    return _WANDB_MODES[mode]


def wandb_project() -> str | None:
    """WANDB_PROJECT: the W&B project that replaces the profile's."""
    return os.environ.get("WANDB_PROJECT") or None


def set_dagster_defaults() -> None:
    """Give `dagster …`, started in the repository, its instance and its code location."""
    arguments = sys.orig_argv
    if len(arguments) < 2 or Path(arguments[1]).name not in ("dagster", "dagster-webserver", "dagster-daemon"):
        return
    if Path.cwd() != repository():
        return
    # The command that the README teaches is not deprecated, only followed by another.
    warnings.filterwarnings("ignore", message=".*superseded and its usage is discouraged")
    if "DAGSTER_HOME" not in os.environ:
        home = dagster_home()
        home.mkdir(parents=True, exist_ok=True)
        settings = repository() / "deploy" / "laptop" / "dagster.yaml"
        if settings.exists() and not (home / "dagster.yaml").exists():
            shutil.copy(settings, home / "dagster.yaml")
        os.environ["DAGSTER_HOME"] = str(home)
    names_code = any(argument.split("=")[0] in _TARGET_OPTIONS for argument in arguments[2:])
    others = ("DAGSTER_PYTHON_FILE", "DAGSTER_PACKAGE_NAME", "DAGSTER_MODULE_NAME")
    if not names_code and not any(name in os.environ for name in others):
        os.environ["DAGSTER_MODULE_NAME"] = CODE_LOCATION
