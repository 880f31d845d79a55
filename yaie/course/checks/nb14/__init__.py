"""What other notebooks still use; its exercises have moved."""

EXERCISES: list = []
