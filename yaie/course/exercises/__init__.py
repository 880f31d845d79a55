"""One package per notebook: its exercises, a module and a list of known mistakes for each."""
