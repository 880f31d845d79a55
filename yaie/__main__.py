"""`python -m yaie` is the `yaie` command."""

from yaie.cli import main

if __name__ == "__main__":
    main()
