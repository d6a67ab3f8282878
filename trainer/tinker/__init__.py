"""The Tinker API on both sides: a learner served to its clients, and a learner of ours elsewhere.

`service` answers the official SDK with the learner and the engine of this package; `remote` is the
learner and engine of a `ludus train` whose weights are somewhere else.
"""
