"""Advantage and baseline estimators, with a file for each kind of credit assignment."""
