"""Kubernetes' timestamps, and how long ago they were in words."""

from datetime import UTC, datetime, timedelta


def parse_time(text: str | None) -> datetime | None:
    """RFC 3339, with or without a fraction of any length."""
    return datetime.fromisoformat(text) if text else None


def utc(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def in_words(age: timedelta) -> str:
    """`14 min`, `30.5 h`: coarse enough not to change with every look."""
    minutes = max(0, int(age.total_seconds() // 60))
    if minutes < 1:
        return "<1 min"
    if minutes < 120:
        return f"{minutes} min"
    halves = minutes // 30
    return f"{halves / 2:g} h"
