"""Whether two formulas have one value: doubles, a normal form, many digits, then sympy."""
