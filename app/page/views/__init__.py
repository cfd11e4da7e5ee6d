"""What each page says: a function from a question to plain values, which the template shows and the `.json` twin is."""
