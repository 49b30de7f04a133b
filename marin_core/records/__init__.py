"""What was tried and what became of it: experiments, outcomes of runs, verdicts, and the pages that show them."""
