"""Text to token ids and back, chat templates, and decoding while a model is still talking.

Reads `tokenizer.json` with the `tokenizers` library and renders chat templates with jinja2 in its
sandbox: a tenth of a second, where importing transformers for the same takes several.
"""

import json
import re
import secrets
from codecs import utf_8_decode
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend

from yaie.model.config import read_json

BROKEN = "\N{REPLACEMENT CHARACTER}"  # what bytes that are no character decode to
Message = dict[str, str]  # {"role": "user", "content": "Hi"}


class Tokenizer:
    """The tokenizer of a model folder in Hugging Face format.

    Attributes:
        eos_token_id: the token that ends a message in the chat template, or None; the model's own
            end tokens, which may be others, are in its configuration.
        special_tokens: their texts by role, such as `{"eos_token": "<|im_end|>"}`.
        joins_bytes: whether `decode` only concatenates the bytes of the tokens.
        shown_bytes: `(token_id, skip_special_tokens)` -> the bytes that `decode` makes of a token.
        chat_template: the jinja source, or None.
    """

    def __init__(self, folder: str | Path):
        folder = Path(folder)
        path = folder / "tokenizer.json"
        if not path.exists():
            raise FileNotFoundError(f"{path} is missing: fetch the model again")
        try:
            self.backend = Backend.from_file(str(path))
        except Exception as error:  # the library raises nothing more precise
            raise ValueError(f"{path} cannot be read ({error}): fetch the model again") from error
        self.backend.no_padding()
        self.backend.no_truncation()
        path = folder / "tokenizer_config.json"
        settings = read_json(path) if path.exists() else {}
        self.special_tokens = _special_tokens(settings)
        self.chat_template = _chat_template(folder, settings)
        self.eos_token_id = self.backend.token_to_id(self.special_tokens.get("eos_token", ""))
        self._template = None
        self._is_byte_level = "ByteLevel" in repr(self.backend.decoder)
        self.joins_bytes = repr(self.backend.decoder).startswith("ByteLevel(")
        self.shown_bytes = cache(
            lambda *token: b"" if self.leaves_out(*token) else self.token_bytes(token[0])
        )
        added = self.backend.get_added_tokens_decoder()
        self._special_ids = {token_id for token_id, token in added.items() if token.special}
        # The longest first, since one may begin with another.
        spelled = sorted((added[i].content for i in self._special_ids), key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, spelled)) or "(?!)")  # no match
        self._plain: Backend | None = None  # made when it is first needed
        self._spelled: list[bytes] = []

    def forget_encoding(self) -> None:
        """Drop what encodes, four fifths of the memory, of a tokenizer that `joins_bytes`."""
        if self.joins_bytes:
            size = max(self.backend.get_vocab().values()) + 1  # not all ids need be tokens
            self._spelled = [self.token_bytes(token_id) for token_id in range(size)]
            self.backend = None

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of `text`; special tokens spelled out in it become their ids.

        Raises:
            ValueError: `text` has half a surrogate pair, which is how Python reads a byte that is
                no UTF-8 where it may not fail.
        """
        if not isinstance(text, str):
            raise TypeError(f"text must be a str, got {type(text).__name__}")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"text must be Unicode, got half a surrogate pair ({text[error.start]!a}) at "
                f"character {error.start}"
            ) from error
        return self.backend.encode(text, add_special_tokens=add_special_tokens).ids

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of `token_ids`. Bytes that are no valid UTF-8 become U+FFFD.

        Ids that the tokenizer does not know are left out: many models have a few more rows in
        their output than their tokenizer has tokens.
        """
        if self.backend is None:
            shown = (self.shown_bytes(token_id, skip_special_tokens) for token_id in token_ids)
            return b"".join(shown).decode(errors="replace")
        return self.backend.decode(list(token_ids), skip_special_tokens=skip_special_tokens)

    def leaves_out(self, token_id: int, skip_special_tokens: bool = True) -> bool:
        """Whether `decode` does as if a token were not there."""
        if token_id in self._special_ids:
            return skip_special_tokens
        if self.backend is None:
            return token_id >= len(self._spelled)
        return self.backend.id_to_token(token_id) is None

    def token_bytes(self, token_id: int) -> bytes:
        """What one token stands for: a token may begin or end in the middle of a character."""
        if self.backend is None:
            return b"".join(self._spelled[token_id : token_id + 1])
        token = self.backend.id_to_token(token_id)
        if token is None:  # the model has more ids than the tokenizer
            return b""
        if self._is_byte_level and BYTE_OF.keys() >= set(token):
            return bytes(map(BYTE_OF.get, token))
        if found := re.fullmatch(r"<0x([0-9A-Fa-f]{2})>", token):  # a byte that has no other token
            return bytes.fromhex(found[1])
        # Once and twice, because some tokenizers drop the space with which a text begins.
        once, twice = (self.decode([token_id] * n, skip_special_tokens=False) for n in (1, 2))
        return twice[len(once) :].encode()

    def apply_chat_template(
        self, messages: Sequence[Message], add_generation_prompt: bool = True,
        name: str = "messages",
    ) -> list[int]:  # fmt: skip
        """Token ids of a conversation, ending where the assistant is to begin. Errors call the
        conversation `name`.

        A special token spelled out in a message's content is encoded as ordinary text. Otherwise
        a user could write `<|im_end|>`, end their own message and begin one of the system's.
        """
        _check_messages(messages, name)
        # What is spelled out is marked before the template is rendered, and found again after it.
        mark = f"\ufdd0{secrets.token_hex(8)}\ufdd1"  # noncharacters, and no guess

        def marked(message: Message) -> Message:
            content = self._special.sub(lambda found: mark + found[0] + mark, message["content"])
            return message | {"content": content}

        text = self.render_chat([marked(message) for message in messages], add_generation_prompt)
        ids = []
        for number, piece in enumerate(text.split(mark)):  # every second one was spelled out
            if piece:
                encode = self._encode_plain if number % 2 else self.encode
                ids += encode(piece, add_special_tokens=False)
        return ids

    def _encode_plain(self, text: str, add_special_tokens: bool) -> list[int]:
        """As `encode`, but special tokens that are spelled out do not become their ids."""
        if self._plain is None:
            self._plain = Backend.from_str(self.backend.to_str())
            self._plain.encode_special_tokens = True
        return self._plain.encode(text, add_special_tokens=add_special_tokens).ids

    def render_chat(self, messages: Sequence[Message], add_generation_prompt: bool = True) -> str:
        """The text of a conversation as the chat template spells it."""
        _check_messages(messages)
        if self.chat_template is None:
            raise ValueError(
                "messages: this model has no chat template; use generate with a plain prompt"
            )
        if self._template is None:
            self._template = _compile(self.chat_template)
        about = {"messages": list(messages), "add_generation_prompt": add_generation_prompt}
        return self._template(**about, tools=None, documents=None, **self.special_tokens)


class StreamDecoder:
    """Turns the tokens of one answer into pieces of text as they come.

    A token may end in the middle of a character: an emoji is four bytes, often several tokens.
    Such a piece is held back until the character is complete or the answer ends. The pieces
    together are the decoded answer, as it reads after `context`: the last tokens of the prompt,
    without which some tokenizers drop the answer's first space. (Tokenizers that spell rare
    characters with byte tokens may differ in how many U+FFFD stand for bytes that are not UTF-8.)
    """

    def __init__(self, tokenizer: Tokenizer, context: Sequence[int] = ()):
        self.tokenizer, self._decode = tokenizer, tokenizer.decode
        self._joins_bytes, self._tail = tokenizer.joins_bytes, b""  # the bytes of half a character
        self._ids = list(context)
        if self._decode(self._ids).endswith(BROKEN):  # a character that the answer may complete
            self._ids = []
        # Tokens from _context on are decoded together, because some tokenizers write the space
        # before a word depending on what comes before it; those before _printed have been emitted.
        self._context, self._printed = 0, len(self._ids)

    def push(self, token_id: int) -> str:
        """Take in one token; returns the text that is now certain, often empty."""
        if self._joins_bytes:
            shown = self._tail + self.tokenizer.shown_bytes(token_id)
            text, end = utf_8_decode(shown, "replace")
            self._tail = shown[end:]
            return text
        # A run of end tokens, which a benchmark ignores, would be decoded again and again.
        if self.tokenizer.leaves_out(token_id):
            return ""
        self._ids.append(token_id)
        return self._emit(hold_back=True)

    def flush(self) -> str:
        """The text still held back, at the end of the answer."""
        if self._joins_bytes:
            shown, self._tail = self._tail, b""
            return shown.decode(errors="replace")
        return self._emit(hold_back=False)

    def _emit(self, hold_back: bool) -> str:
        printed = self._decode(self._ids[self._context : self._printed])
        text = self._decode(self._ids[self._context :])
        end = len(self._ids)
        if hold_back and text.endswith(BROKEN):
            text, end = self._settled(text)
        piece = text[len(printed) :]
        if piece:
            self._context, self._printed = self._printed, end
        return piece

    def _settled(self, text: str) -> tuple[str, int]:
        """Of a text with an end that is no character yet, what is certain, and where that ends.

        A character has at most four bytes, so an unfinished one began at most three tokens ago.
        While there are no more than four tokens, the next one may make characters of them all.
        """
        last = len(self._ids)
        for end in range(last - 3, last) if last - self._printed > 4 else ():
            certain = self._decode(self._ids[self._context : end])
            if certain + self._decode(self._ids[end:]) == text:
                return certain, end
        return "", self._printed


def _byte_alphabet() -> dict[str, int]:
    """The letters in which byte-level tokenizers write the 256 bytes (GPT-2's encoder).

    A byte that is a printable character of Latin-1 is that character; the others are, in order,
    the characters from U+0100 on.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {chr(byte): byte for byte in printable}
    return letters | {chr(0x100 + i): byte for i, byte in enumerate(others)}


BYTE_OF = _byte_alphabet()


def _special_tokens(settings: dict[str, Any]) -> dict[str, str]:
    """Texts by role; older files store a token as a dictionary with its content."""
    found = {}
    for role in ("bos_token", "eos_token", "unk_token", "pad_token"):
        token = settings.get(role)
        token = token.get("content") if isinstance(token, dict) else token
        if isinstance(token, str):
            found[role] = token
    return found


def _chat_template(folder: Path, settings: dict[str, Any]) -> str | None:
    """The template, from its own file or the settings; of several, the one named default."""
    path = folder / "chat_template.jinja"
    if path.exists():
        return path.read_text(encoding="utf-8")
    template = settings.get("chat_template")
    if isinstance(template, list):
        return {entry["name"]: entry["template"] for entry in template}.get("default")
    return template


def _check_messages(messages: Sequence[Message], name: str = "messages") -> None:
    if not isinstance(messages, list | tuple) or not messages:
        raise ValueError(f"{name} must be a non-empty list of dictionaries, got {messages!r}")
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or not {"role", "content"} <= message.keys():
            raise ValueError(
                f"{name}[{index}] must be a dictionary with role and content, got {message!r}"
            )
        if not isinstance(message["content"], str):
            kind = type(message["content"]).__name__
            raise TypeError(f"{name}[{index}]['content'] must be a str, got {kind}")


def _compile(source: str):
    """A function that renders a chat template, with the names that such templates may use.

    A template comes with the model, so it runs in jinja's sandbox: no private attributes, nothing
    that changes its arguments.
    """
    import jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def raise_exception(message: str):
        raise ValueError(f"messages: the chat template refuses them: {message}")

    def tojson(value: Any, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        """With the arguments that transformers has: others, such as `cls`, are not a template's."""
        given = {"indent": indent, "separators": separators, "sort_keys": sort_keys}
        return json.dumps(value, ensure_ascii=ensure_ascii, **given)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)

    try:
        template = environment.from_string(source)
    except jinja2.TemplateError as error:
        raise ValueError(f"the model's chat template is not valid: {error}") from error

    def render(**values: Any) -> str:
        try:
            return template.render(**values)
        except (jinja2.TemplateError, TypeError, ArithmeticError, LookupError) as error:
            raise ValueError(f"messages: the chat template fails on them: {error}") from error

    return render
