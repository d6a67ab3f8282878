"""Proofs that two formulas are equal or different: doubles, a normal form, many digits, then
sympy.
"""
