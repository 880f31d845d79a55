"""Real prompts: short and long, chat, many scripts, emoji, code, digits, whitespace.

`PROMPTS` maps a name to a text or to a list of chat messages. Long passages are from Lewis
Carroll's "Alice's Adventures in Wonderland" (1865), which is in the public domain.
"""

from yaie.model.tokenizer import Tokenizer

ALICE = """\
Alice was beginning to get very tired of sitting by her sister on the bank, and of having nothing \
to do: once or twice she had peeped into the book her sister was reading, but it had no pictures \
or conversations in it, "and what is the use of a book," thought Alice "without pictures or \
conversations?"

So she was considering in her own mind (as well as she could, for the hot day made her feel very \
sleepy and stupid), whether the pleasure of making a daisy-chain would be worth the trouble of \
getting up and picking the daisies, when suddenly a White Rabbit with pink eyes ran close by her.

There was nothing so very remarkable in that; nor did Alice think it so very much out of the way \
to hear the Rabbit say to itself, "Oh dear! Oh dear! I shall be late!" (when she thought it over \
afterwards, it occurred to her that she ought to have wondered at this, but at the time it all \
seemed quite natural); but when the Rabbit actually took a watch out of its waistcoat-pocket, and \
looked at it, and then hurried on, Alice started to her feet, for it flashed across her mind that \
she had never before seen a rabbit with either a waistcoat-pocket, or a watch to take out of it, \
and burning with curiosity, she ran across the field after it, and fortunately was just in time \
to see it pop down a large rabbit-hole under the hedge.

In another moment down went Alice after it, never once considering how in the world she was to \
get out again.

The rabbit-hole went straight on like a tunnel for some way, and then dipped suddenly down, so \
suddenly that Alice had not a moment to think about stopping herself before she found herself \
falling down a very deep well.

Either the well was very deep, or she fell very slowly, for she had plenty of time as she went \
down to look about her and to wonder what was going to happen next. First, she tried to look down \
and make out what she was coming to, but it was too dark to see anything; then she looked at the \
sides of the well, and noticed that they were filled with cupboards and book-shelves; here and \
there she saw maps and pictures hung upon pegs. She took down a jar from one of the shelves as \
she passed; it was labelled "ORANGE MARMALADE", but to her great disappointment it was empty: she \
did not like to drop the jar for fear of killing somebody underneath, so managed to put it into \
one of the cupboards as she fell past it.

"Well!" thought Alice to herself, "after such a fall as this, I shall think nothing of tumbling \
down stairs! How brave they'll all think me at home! Why, I wouldn't say anything about it, even \
if I fell off the top of the house!" (Which was very likely true.)

Down, down, down. Would the fall never come to an end? "I wonder how many miles I've fallen by \
this time?" she said aloud. "I must be getting somewhere near the centre of the earth. Let me \
see: that would be four thousand miles down, I think--" (for, you see, Alice had learnt several \
things of this sort in her lessons in the schoolroom, and though this was not a very good \
opportunity for showing off her knowledge, as there was no one to listen to her, still it was \
good practice to say it over) "--yes, that's about the right distance--but then I wonder what \
Latitude or Longitude I've got to?" (Alice had no idea what Latitude was, or Longitude either, \
but thought they were nice grand words to say.)

Presently she began again. "I wonder if I shall fall right through the earth! How funny it'll \
seem to come out among the people that walk with their heads downward! The Antipathies, I think\
--" (she was rather glad there was no one listening, this time, as it didn't sound at all the \
right word) "--but I shall have to ask them what the name of the country is, you know. Please, \
Ma'am, is this New Zealand or Australia?" (and she tried to curtsey as she spoke--fancy curtseying \
as you're falling through the air! Do you think you could manage it?) "And what an ignorant \
little girl she'll think me for asking! No, it'll never do to ask: perhaps I shall see it written \
up somewhere."

Down, down, down. There was nothing else to do, so Alice soon began talking again. "Dinah'll miss \
me very much to-night, I should think!" (Dinah was the cat.) "I hope they'll remember her saucer \
of milk at tea-time. Dinah my dear! I wish you were down here with me! There are no mice in the \
air, I'm afraid, but you might catch a bat, and that's very like a mouse, you know. But do cats \
eat bats, I wonder?"
"""

MANUAL = """\
You answer questions about the paged cache of a small inference engine. Keep to what is written \
here. The cache is an array of blocks. A block holds the keys and values of sixteen tokens in \
every layer. A request has a block table, a list of block numbers in the order of its tokens. \
Token i of a request lies in block i // 16 of its table, at offset i % 16. Blocks are taken from \
a free list when a request is admitted, and one more whenever its last block is full. Each block \
has a count of its users. A request is one user of each block in its table, and the prefix cache \
is one user of each block that it keeps. A block whose count falls to zero goes back to the free \
list. When a request ends, its full blocks stay in the prefix cache, so that a later request \
with the same beginning need not compute them again. When blocks run out, the prefix cache gives \
up those that were used longest ago. If that is not enough, the request that was admitted last \
is preempted: it gives up its blocks, waits in front of the queue, and is computed again when \
there is room. Its generated tokens are not lost. Answer in one or two sentences, in plain \
words, without lists."""

STATIONS = "\n".join(
    f"{2000 + i}-{i % 12 + 1:02d}-{i * 7 % 28 + 1:02d},{i * 37 % 100:02d}.{i * 13 % 10},"
    f"{'north' if i % 3 else 'south'},{1000 + i * i % 97}"
    for i in range(24)
)


def chat(question: str, system: str | None = None, *turns: str) -> list[dict[str, str]]:
    """Messages: the system prompt, then `turns` of user and assistant, then the question."""
    messages = [{"role": "system", "content": system}] if system else []
    for i, turn in enumerate(turns):
        messages.append({"role": "assistant" if i % 2 else "user", "content": turn})
    return [*messages, {"role": "user", "content": question}]


PROMPTS: dict[str, str | list[dict[str, str]]] = {
    # short
    "one word": "Photosynthesis",
    "one letter": "a",
    "a beginning": "Once upon a time",
    "a fact": "The capital of France is",
    "a list": "Monday, Tuesday, Wednesday,",
    # 1,000 tokens and more
    "a long story": ALICE,
    # in the middle: these begin alike, so that one finds the other in the cache
    "half a story": ALICE[:1800],
    "half a story and a question": ALICE[:1800] + "\n\nQuestion: What did Alice see?\nAnswer:",
    # chat
    "chat": chat("What is the largest planet of the solar system?"),
    "chat with a manual": chat("What happens when blocks run out?", MANUAL),
    "chat with the same manual": chat("Where does token 35 of a request lie?", MANUAL),
    "chat in turns": chat(
        "And of Italy?",
        "You are a helpful assistant.",
        "What is the capital of Spain?",
        "The capital of Spain is Madrid.",
    ),
    # languages and scripts
    "German": "Übermäßiger Lärm stört die Anwohner der Straße, deshalb",
    "French": "Où est la bibliothèque ? Elle se trouve à côté de",
    "Spanish": "Había una vez un niño que vivía en",
    "Russian": "Жил-был старик со старухой у самого синего моря;",
    "Greek": "Η Αθήνα είναι η πρωτεύουσα της",
    "Chinese": "从前有一座山,山上有一座庙,庙里有",
    "Japanese": "吾輩は猫である。名前はまだ無い。",
    "Korean": "옛날 옛적에 호랑이가 담배 피우던 시절에",
    "Arabic": "كان يا ما كان في قديم الزمان",
    "Hebrew": "בראשית ברא אלהים את השמים ואת",
    "Hindi": "एक समय की बात है, एक गाँव में",
    "Thai": "กาลครั้งหนึ่งนานมาแล้ว",
    # emoji
    "emoji": "I love 🍕 and 🎉! My favourite emoji are 😀😂🥳 and",
    "joined emoji": "Family: 👨‍👩‍👧‍👦, flag: 🇯🇵, thumbs: 👍🏽. The next one is",
    # code
    "Python": "def fibonacci(n):\n    if n < 2:\n        return n\n    return",
    "C": "#include <stdio.h>\n\nint main(void) {\n    for (int i = 0; i < 9; i++) {\n        put",
    "JSON": '{"name": "Alice", "age": 7, "friends": ["Dinah", "White Rabbit"], "city":',
    # digits and whitespace
    "digits": "3.14159265358979323846264338327950288",
    "a table": STATIONS,
    "whitespace": "  \n\n\t  first\n\n\n    second\t\tthird   \n",
    "one newline": "\n",
}


def encoded(tokenizer: Tokenizer) -> dict[str, list[int]]:
    """The tokens of each prompt."""
    return {
        name: tokenizer.encode(prompt)
        if isinstance(prompt, str)
        else tokenizer.apply_chat_template(prompt)
        for name, prompt in PROMPTS.items()
    }
