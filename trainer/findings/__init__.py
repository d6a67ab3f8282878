"""What the numbers of a run say: one list of rules, and findings as data; see docs/training.md."""
