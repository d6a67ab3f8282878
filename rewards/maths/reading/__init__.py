"""What was written: characters to tokens to a tree, in linear time and with nothing evaluated."""
