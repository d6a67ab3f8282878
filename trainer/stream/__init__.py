"""The stream of rollouts of a run: issue, deadlines, accounts, and the state for a checkpoint."""
