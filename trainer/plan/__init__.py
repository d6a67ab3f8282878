"""The plan of a run, before anything is spent: `ludus train --dry-run`."""
