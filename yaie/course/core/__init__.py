"""The machinery of exercises: the list, stubs and solutions, the judge, the words for a learner."""
