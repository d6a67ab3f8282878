"""Learning from data: what files, hubs and recorded runs hold, as rows of tokens.

encoding.py      conversations as tokens, in the chat format's own masks
recorded.py      episodes of runs, with the ids that were sampled
examples.py      the units of a data set: their order, batches, the held-out part
supervised.py    the run that supervised training shares: folder, learner, checkpoints
preferences.py   ludus train dpo and its relatives
losses.py        their losses
rollout_pairs.py preferences between recorded rollouts
"""
