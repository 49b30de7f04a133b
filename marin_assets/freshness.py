"""How old an asset may be before the web UI says so. Whether it fits its inputs is another question, which its versions
answer; this is about the world outside."""

from datetime import timedelta

import dagster as dg

# A source may have changed at its origin since its files were taken, and the site should hold what was recorded lately.
FRESH_WITHIN_MONTHS = dg.FreshnessPolicy.time_window(fail_window=timedelta(days=90), warn_window=timedelta(days=30))
