"""Sources: what is declared, and how its files get here."""
