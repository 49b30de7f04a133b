"""datatrove's quality filters, document by document: a method for `measuring.py`. Reading and writing do not count."""

from typing import Any

from measuring import Clock
from peer_tokenizers import read_texts


def datatrove(clock: Clock, files: list[str], rule: str) -> dict[str, Any]:
    """One of `GopherQualityFilter`, `GopherRepetitionFilter`, `C4QualityFilter`, `FineWebQualityFilter`."""
    from datatrove.data import Document
    from datatrove.pipeline import filters
    from loguru import logger

    logger.remove()
    judge = getattr(filters, rule)()
    documents = [Document(text=text, id=str(number)) for number, text in enumerate(read_texts(files))]
    judge.filter(Document(text=documents[0].text, id="warm-up"))  # loads the word splitter
    with clock:
        kept = sum(judge.filter(document) is True for document in documents)
    return {"kept": kept}
