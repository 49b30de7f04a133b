"""Real text of three kinds, from documentation packages of the system and from installed Python code.

    python corpus.py PACKAGES SITE_PACKAGES OUT --cap-mb 45

PACKAGES is a folder that .deb files were unpacked into. Writes `OUT/{web,code,math}.parquet`: id, text, source. Runs in
the peers' environment, which has lxml.
"""

import argparse
import hashlib
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import lxml.html
import pyarrow as pa
import pyarrow.parquet as pq
from lxml.etree import LxmlError

WEB_FOLDERS = ("doc/anarchism/html", "doc/python3.11/html", "doc/linux-doc-6.1")
MIN_CHARACTERS = 200
THEOREMS_PER_DOCUMENT = 12
BLOCKS = {
    *("p", "div", "li", "tr", "br", "h1", "h2", "h3", "h4", "h5", "h6", "pre", "dd", "dt"),
    *("table", "ul", "ol", "section", "blockquote", "td"),
}
FURNITURE = " | ".join(
    ["//script", "//style", "//nav", "//head", "//a[@class='headerlink']"]
    + [f"//div[@class='{name}']" for name in ("sphinxsidebar", "related")]
)
MAIN_PART = ("//div[@role='main']", "//div[@class='body']", "//body")
# A comment, hypotheses and a labelled statement. The compressed letters of the proof carry no language: left out.
METAMATH = re.compile(
    r"\$\((?P<comment>(?:(?!\$\)).)*)\$\)\s*(?:\$\{\s*)?(?P<hypotheses>(?:\s*\S+ \$[edf] [^$]*\$\.)*)"
    r"\s*(?P<label>\S+) \$(?P<kind>[ap]) (?P<statement>[^$]*?)(?:\$=[^$]*)?\$\.",
    re.DOTALL,
)


def page_text(path: Path) -> str | None:
    """The text of an HTML page's main part: a line per block, blanks collapsed outside `pre`."""
    try:
        root = lxml.html.parse(str(path)).getroot()
    except (OSError, LxmlError, AssertionError):
        return None
    if root is None:
        return None
    for element in root.xpath(FURNITURE):
        element.drop_tree()
    main = next((found[0] for query in MAIN_PART if (found := root.xpath(query))), root)
    text = re.sub(r"[ \t]+\n", "\n", "".join(pieces(main, False)))
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"\n[ ]+(?=\S)", "\n", text)).strip()


def pieces(element: lxml.html.HtmlElement, verbatim: bool) -> Iterator[str]:
    if isinstance(element.tag, str):
        inside = verbatim or element.tag == "pre"
        edge = "\n" if element.tag in BLOCKS else ""
        yield edge + blanks(element.text, inside)
        for child in element:
            yield from pieces(child, inside)
        yield edge
    yield blanks(element.tail, verbatim)


def blanks(text: str | None, verbatim: bool) -> str:
    return "" if not text else text if verbatim else re.sub(r"\s+", " ", text)


def file_text(path: Path) -> str | None:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def document(path: Path) -> str | None:
    text = page_text(path) if path.suffix == ".html" else file_text(path)
    # Lone surrogates cannot be written as UTF-8.
    return text.encode("utf-8", "replace").decode() if text and len(text) > MIN_CHARACTERS else None


def capped(paths: list[Path], cap: int) -> list[str]:
    """Documents of the files in order, until they hold `cap` characters."""
    taken, documents = 0, []
    with ProcessPoolExecutor(2) as pool:
        # In rounds, so that files behind the cap are not read.
        for start in range(0, len(paths), 1024):
            for found in filter(None, pool.map(document, paths[start : start + 1024], chunksize=64)):
                if taken >= cap:
                    return documents
                documents.append(found)
                taken += len(found)
    return documents


def theorems(path: Path) -> Iterator[str]:
    def entry(match: re.Match[str]) -> str:
        comment, hypotheses, statement = (" ".join(match[k].split()) for k in ("comment", "hypotheses", "statement"))
        head = "Theorem" if match["kind"] == "p" else "Axiom"
        return f"{comment}\n{hypotheses}{chr(10) * bool(hypotheses)}{head} {match['label']}: {statement}\n"

    entries = [entry(match) for match in METAMATH.finditer(path.read_text("utf-8", "replace"))]
    for start in range(0, len(entries), THEOREMS_PER_DOCUMENT):
        yield "\n".join(entries[start : start + THEOREMS_PER_DOCUMENT])


def write(path: Path, documents: list[str], cap: int) -> None:
    """The first `cap` bytes of the documents in the order of their digests, which looks random and is the same
    everywhere."""
    kept: dict[str, str] = {}
    taken = 0
    for key, text in sorted((digest(text), text) for text in documents):
        if taken < cap and key not in kept:
            kept[key] = text
            taken += len(text.encode())
    columns = {"id": list(kept), "text": list(kept.values()), "source": [path.stem] * len(kept)}
    pq.write_table(pa.table(columns), path, compression="zstd")
    print(f"{path.stem}: {len(kept):,} documents, {taken / 1e6:.1f} MB")


def digest(text: str) -> str:
    return hashlib.md5(text.encode()).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("packages", type=Path)
    parser.add_argument("site_packages", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--cap-mb", type=float, default=45)
    options = parser.parse_args()
    sys.setrecursionlimit(20_000)  # some pages nest thousands of elements
    cap, share = int(options.cap_mb * 1e6), options.packages / "usr" / "share"
    options.out.mkdir(parents=True, exist_ok=True)
    pages = [path for folder in WEB_FOLDERS for path in sorted((share / folder).rglob("*.html"))]
    write(options.out / "web.parquet", capped(pages, cap), cap)
    code = sorted(options.site_packages.rglob("*.py"), key=lambda p: digest(str(p.relative_to(options.site_packages))))
    write(options.out / "code.parquet", capped(code, cap), cap)
    manual = sorted((share / "doc" / "sagemath" / "html" / "en").rglob("*.html"))
    manual = [path for path in manual if "genindex" not in path.name and "_modules" not in str(path)]
    proofs = [row for path in sorted((share / "metamath").rglob("*.mm")) for row in theorems(path)]
    write(options.out / "math.parquet", proofs + capped(manual, cap), cap)


if __name__ == "__main__":
    main()
