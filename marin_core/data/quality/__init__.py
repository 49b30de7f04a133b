"""Quality: which documents their rules keep, and why not the others."""
