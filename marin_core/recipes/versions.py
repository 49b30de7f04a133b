"""The versions of recipes that have constants of their own here. A fork's version is any other text."""

from typing import Literal

# adamh_scaling_v6   the published Delphi suite.
# adamh_scaling_v5   the generation before: its runs are named so, and are no part of the suite.
# adamh_first        the first AdamH recipe; the name is ours, since its label is not on the public record.
# nano_v1            the laptop's.
KnownVersion = Literal["adamh_scaling_v6", "adamh_scaling_v5", "adamh_first", "nano_v1"]
