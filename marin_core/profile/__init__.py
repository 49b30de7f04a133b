"""A profile says *what* is built (`[scale]`) and *where* (`[place]`): one TOML file, of two sections that never mix."""

from marin_core.profile.declaration import HubTarget, Place, PretrainedTokenizer, Profile, Scale, TrainedTokenizer
from marin_core.profile.load import load_profile

__all__ = ["HubTarget", "Place", "PretrainedTokenizer", "Profile", "Scale", "TrainedTokenizer", "load_profile"]
