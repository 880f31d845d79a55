"""A kernel's source with its text changed, so that it tells what it does."""

from collections.abc import Mapping


def changed(source: str, name: object, changes: Mapping[str, str]) -> str:
    """The source with each text that is a key replaced by its value.

    Args:
        name: what an error calls the source, such as its path.

    Raises:
        ValueError: a text is not there exactly once.
    """
    for old, new in changes.items():
        if source.count(old) != 1:
            raise ValueError(
                f"{name} must have {old.strip()!r} once, has it {source.count(old)} times"
            )
        source = source.replace(old, new)
    return source
