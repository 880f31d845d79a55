"""The machinery of the course: exercises, verdicts, cards and pictures, the same for all."""
