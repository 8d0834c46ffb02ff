"""What a prompt is made of: the values that it names, and the text around them."""
