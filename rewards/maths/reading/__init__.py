"""Parsing of answers: characters to tokens to a tree, in linear time and without evaluating
anything.
"""
