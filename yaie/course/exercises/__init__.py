"""One module a notebook: its exercises and the functions that check them."""
