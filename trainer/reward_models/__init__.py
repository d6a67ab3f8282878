"""`ludus train reward`: reward models learn from rankings, ratings and labelled steps.

heads.py      what is trained: a text head, a process head, ImageReward over its own network
rankings.py   the data: answers with ranks, ratings, steps with labels
training.py   the run: losses, updates, checkpoints, what is held out
measures.py   the card: agreement, calibration, injections, length
"""
