"""Pictures of pages that tests look at, for people to look at afterwards."""

import os
from pathlib import Path

from playwright.sync_api import Page

REPOSITORY = Path(__file__).parents[1]


def screenshot(page: Page, name: str) -> Path:
    """Save what a page shows as `name`.png, in the folder MARIN_SCREENSHOTS or in `.marin/screenshots`."""
    folder = Path(os.environ.get("MARIN_SCREENSHOTS") or REPOSITORY / ".marin" / "screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.png"
    page.screenshot(path=path)
    return path
