"""How far a training run came that did not come to its end: what it left in the store tells."""

import json
from typing import Any

from marin_core.store import Store

_ROWS = "metrics"
_ROWS_ENDING = ".jsonl"


def how_far(store: Store, name: str, fingerprint: str) -> dict[str, Any]:
    """`last_step`, from 0, and the `loss` there in nats per token; nothing if it trained no step."""
    parts = [path for path, _ in store.objects.list(f"{name}/{fingerprint}/") if _is_part(path)]
    rows: dict[int, float] = {}
    for part in parts:
        stored = store.objects.read(part)
        for line in stored.data.decode(errors="replace").splitlines() if stored else ():
            try:
                row = json.loads(line)
            except ValueError:
                continue  # the kill cut this line short
            if "loss" in row:
                rows[row["step"]] = row["loss"]
    return {"last_step": max(rows), "loss": rows[max(rows)]} if rows else {}


def _is_part(path: str) -> bool:
    file = path.rsplit("/", 1)[-1]
    return file.startswith(_ROWS) and file.endswith(_ROWS_ENDING)
