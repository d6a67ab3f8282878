"""A learner whose weights, gradients and moments several processes share, by FSDP2.

Under torchrun, rank 0 drives the run and the others follow (`launch.py`); `learner.ShardedLearner`
is the `Learner` of each.
"""
