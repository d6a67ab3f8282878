"""Grading of programs by hidden tests: functions, whole programs, pytest files and repositories."""
