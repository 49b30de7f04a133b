"""What the data benchmark needs before it measures, made once and kept under `.marin/benchmarks`.

The peers' environment, the corpus, the Llama-3 vocabulary and the sets of documents in a store. Nothing of it is ever
committed or passed on. Needs Debian's package manager and its lists.
"""

import contextlib
import dataclasses
import importlib.metadata
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from documents import Set, write_sets

from marin_core import environment
from marin_core.errors import MarinError
from marin_core.store import ArtifactSpec, Store

HERE = Path(__file__).parent
# What both environments must have in the same version for a comparison to be one of methods.
SHARED = ("pyarrow", "numpy", "tokenizers")
WHEEL = "llama-models==0.3.0"
DEBIAN_PACKAGES = ("linux-doc-6.1", "python3.11-doc", "anarchism", "metamath-databases", "sagemath-doc")
SLICES = {"slice": 8.0, "small": 2.0}
TOKENIZER = ArtifactSpec("tokenizer/llama3", "benchmark", "1")


@dataclass(frozen=True)
class Prepared:
    """Where everything is: interpreters, the store, the vocabulary's folder."""

    ours: Path
    peers: Path
    store: str
    tokenizer: Path

    def set(self, name: str) -> Set:
        """`documents` (all), `slice` and `small` (the first MB of it), `planted` and `dense` (with near-duplicates)."""
        return Set(self.store, name)

    @contextlib.contextmanager
    def copied(self) -> Iterator["Prepared"]:
        """The same with a store of its own, of links to the files, for what is built while measuring."""
        with tempfile.TemporaryDirectory(dir=Path(self.store).parent) as folder:
            shutil.copytree(self.store, folder, copy_function=os.link, dirs_exist_ok=True)
            yield dataclasses.replace(self, store=folder)

    @property
    def truth(self) -> str:
        """Parquet of id, of, kind: the planted near-duplicates."""
        return str(Path(self.store, "truth.parquet"))


def prepare(megabytes: float, log: Callable[[str], None]) -> Prepared:
    """Make what is missing; `megabytes` of text in three equal kinds.

    Raises:
        MarinError: a package cannot be had.
    """
    cache = environment.state_folder() / "benchmarks"
    peers, tokenizer = cache / "peers", cache / "llama3"
    corpus, store = cache / f"corpus-{megabytes:g}", cache / f"store-{megabytes:g}"
    python = peers / "bin" / "python"
    site_packages = sysconfig.get_paths()["purelib"]

    def documents(folder: Path) -> None:
        write_sets(corpus, str(folder), SLICES)
        write_tokenizer(tokenizer, str(folder))

    def extract(folder: Path) -> None:
        run(python, HERE / "corpus.py", cache / "packages", site_packages, folder, "--cap-mb", f"{megabytes / 3:g}")

    steps: list[tuple[str, Path, Callable[[Path], None]]] = [
        ("the peers' environment", peers, make_environment),
        ("documentation packages (145 MB)", cache / "packages", download),
        ("the Llama-3 vocabulary", tokenizer, lambda folder: run(python, HERE / "vocabulary.py", folder)),
        ("the text of the packages", corpus, extract),
        ("the sets of documents", store, documents),
    ]
    for what, folder, make in steps:
        if not (folder / ".done").exists():
            log(f"preparing {what} in {folder}")
            shutil.rmtree(folder, ignore_errors=True)
            make(folder)
            (folder / ".done").touch()
    return Prepared(Path(sys.executable), python, str(store), tokenizer)


def make_environment(folder: Path) -> None:
    uv = os.environ.get("UV") or shutil.which("uv") or environment.repository() / ".uv" / "bin" / "uv"
    pins = [f"{package}=={importlib.metadata.version(package)}" for package in SHARED]
    run(uv, "venv", "--quiet", "--python", sys.base_prefix + "/bin/python3", folder)
    install = (uv, "pip", "install", "--quiet", "--python", folder / "bin" / "python")
    run(*install, "-r", HERE / "peers.txt", *pins)
    run(*install, "--no-deps", WHEEL)  # only for the file in it


def download(folder: Path) -> None:
    packages = folder / "downloads"
    packages.mkdir(parents=True)
    try:
        run("apt-get", "download", *DEBIAN_PACKAGES, cwd=packages)
    except MarinError:
        run("apt-get", "update")  # lists that are old name files that are gone
        run("apt-get", "download", *DEBIAN_PACKAGES, cwd=packages)
    for package in packages.glob("*.deb"):
        run("dpkg", "-x", package, folder)
    shutil.rmtree(packages)


def write_tokenizer(tokenizer: Path, store: str) -> None:
    with Store(store).writer(TOKENIZER) as writer:
        for name in ("tokenizer.json", "tokenizer_config.json"):
            with writer.open(name) as file:
                file.write((tokenizer / name).read_bytes())
        writer.commit({})


def run(*command: str | Path, cwd: Path | None = None) -> None:
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise MarinError(
            f"the data benchmark needs {Path(words[0]).name}, which is not here; it runs on Debian 12 with uv"
        ) from None
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise MarinError(f"{' '.join(words[:3])} … failed: {last}; mend that and start the benchmark again")
