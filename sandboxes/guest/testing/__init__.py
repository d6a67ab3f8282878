"""Both sides of a grading: the solution's process and the process of the tests."""
