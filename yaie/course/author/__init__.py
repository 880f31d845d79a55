"""Tools for authors: `python -m yaie.course.author` for notebooks, `build` for exercises."""
