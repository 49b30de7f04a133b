"""Publishing on a Hugging Face hub: a model of the suite, and the tables behind its figures."""
