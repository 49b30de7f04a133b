"""The public record as static HTML: what a store holds, rendered from the store alone.

Nothing is fetched from elsewhere and all links are relative, so that the pages open from a folder as from a bucket.
What is shown is gathered once (`content.py`); each kind of page has a module of its own, which yields its files one at
a time (`build.py`).
"""
