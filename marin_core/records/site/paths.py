"""Where each page lies, from the root of the site. Slashes in names become folders."""

import posixpath
import re

INDEX = "index.html"
EXPERIMENTS = "experiments"
RECORDS = "records"
FAILED = "records/failed"
ARTIFACTS = "artifacts.html"
DATASETS = "datasets.html"
LINEAGE = "lineage.html"
SEARCH = "search.html"
SEARCH_INDEX = "search.js"
RECORDS_TABLE = "records/records.csv"


def artifact_page(name: str, fingerprint: str) -> str:
    return f"artifacts/{_safe(name)}/{fingerprint}.html"


def artifact_list(name: str, number: int = 1) -> str:
    """The list of all artifacts of a name, which has several pages."""
    return list_page(f"artifacts/{_safe(name)}", number)


def dataset_page(source: str) -> str:
    return f"datasets/{_safe(source)}.html"


def experiment_page(experiment: str) -> str:
    return f"{EXPERIMENTS}/{_safe(experiment)}/index.html"


def outcome_page(record: str) -> str:
    return f"runs/{_safe(record)}.html"


def failed_as(exit_class: str) -> str:
    """The folder of the list of what failed in one way."""
    return f"{FAILED}/{slug(exit_class)}"


def list_page(folder: str, number: int) -> str:
    return f"{folder}/{INDEX}" if number == 1 else f"{folder}/page-{number}.html"


def beside(page: str, name: str) -> str:
    """A file in the folder of a page."""
    return posixpath.join(posixpath.dirname(page), name)


def relative(page: str, target: str) -> str:
    """The link from a page to a path of the site."""
    return posixpath.relpath(target, posixpath.dirname(page) or ".")


def slug(words: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")


def _safe(name: str) -> str:
    """A name as a path. What is no plain character is written as its number, and so is a dot that begins a part."""
    return "/".join(re.sub(r"^\.|[^A-Za-z0-9_.-]", _number, part) for part in name.split("/"))


def _number(found: re.Match[str]) -> str:
    return f"~{ord(found.group()):x}"
