"""Findings: what is wrong with a run, or how well it does, by rules about its numbers.

A **rule** (`rules.toml`) compares a quantity of a run with a threshold. A **finding** opens when
the quantity reaches the threshold, and closes when it has gone back, by default to half of the
threshold. It has a sentence with the numbers of the run, and a remedy: a command or options. A
finding may have another one as its **cause**; it is then a consequence of that one. An **event** is
what a run tells without a rule, such as a checkpoint that could not be written. See
docs/training.md.
"""
