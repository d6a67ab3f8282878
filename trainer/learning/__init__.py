"""From finished rollouts to new weights: rows, batches, the learner and the updates."""
