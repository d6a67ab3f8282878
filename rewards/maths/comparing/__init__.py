"""Whether two trees say the same: lists, sets of reals, relations, units, words, choices."""
