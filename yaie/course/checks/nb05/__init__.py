"""Exercises of notebook 05: two filters, and a sampler that keeps requests apart."""

from __future__ import annotations

from yaie.course.checks.nb05.filters import check_top_k, check_top_p
from yaie.course.checks.nb05.pictures import draw_sample, draw_top_k, draw_top_p
from yaie.course.checks.nb05.sample import check_sample
from yaie.course.core.manifest import Exercise

NOTEBOOK = "05_sampling"

EXERCISES = [
    Exercise(
        id="05.1",
        notebook=NOTEBOOK,
        slug="top_k",
        title="Keep the k most likely tokens",
        target="yaie.engine.sampling:SamplingKernel.top_k",
        task=(
            "Set all but the `k` largest logits of each row to -inf. Every row has its own `k`: "
            '`_column("top_k", k, logits)` makes a float32 column `[batch, 1]` of whatever came, '
            "and raises if it is out of range. What is kept keeps its place and its value."
        ),
        difficulty=1,
        minutes=10,
        hints=(
            "If you knew the k-th largest logit of a row, the rest would be one comparison: what "
            "is smaller goes. Sorting gives you the k-th largest for every k at once.",
            "A k of 0, or above the vocabulary, is the same as a k of exactly the vocabulary: the "
            "threshold is then the smallest logit, and nothing is below it. Bring k into the range "
            "from 1 to the vocabulary first, and no index can be out of range.",
            "The sorted row, an index for each row, a comparison:\n\n"
            "    vocabulary = logits.shape[-1]\n"
            '    k = _column("top_k", k, logits).long()     # [batch, 1]\n'
            "    k = torch.where(..., vocabulary, k)         # 0, and what is too large\n"
            "    ordered = logits.sort(dim=-1, descending=True).values\n"
            "    threshold = ordered.gather(-1, ...)         # the k-th largest of each row\n"
            '    return logits.masked_fill(..., float("-inf"))',
        ),
        proves=(
            "It kept the same tokens as counting larger ones did on 150 random batches, with "
            "ties, a k for each row, and every k from 0 to beyond the vocabulary."
        ),
        check=check_top_k,
        picture=draw_top_k,
        part="sampler",
    ),
    Exercise(
        id="05.2",
        notebook=NOTEBOOK,
        slug="top_p",
        title="Keep the nucleus and the token that completes it",
        target="yaie.engine.sampling:SamplingKernel.top_p",
        task=(
            "Sort each row, likeliest first, and add up the probabilities. A token goes if those "
            "before it have reached `p` already. Decide in sorted order, carry the decision back "
            "to the tokens' own places, and set the logits that go to -inf. "
            '`_column("top_p", p, logits)` makes a column `[batch, 1]` of `p`.'
        ),
        difficulty=2,
        minutes=15,
        hints=(
            "Walk down the sorted list with a bag. Put a token in, look whether the bag weighs p, "
            "and stop if it does. The token that made it heavy enough is in the bag.",
            "Whether a token goes depends on the sum *before* it, not the sum with it. The first "
            "token has 0 before it, so it always stays. And sorting gives two things, the sorted "
            "values and `order`: entry i of the sorted row is token `order[i]`.",
            "In sorted order first:\n\n"
            "    ordered, order = logits.sort(dim=-1, descending=True, stable=True)\n"
            "    probabilities = ordered.softmax(dim=-1, dtype=torch.float32)\n"
            "    before = ...                    # cumsum, without the token itself\n"
            "    drop = (before >= p) & ...      # never where p is 1, never the first\n\n"
            "and then back, so that decision i lands at token order[i]:\n\n"
            "    drop = drop.scatter(-1, order, ...)\n"
            '    return logits.masked_fill(drop, float("-inf"))',
        ),
        proves=(
            "It kept the same tokens as adding them one by one did on 150 random batches, at least "
            "one in every row, and of equal tokens only as many as are needed."
        ),
        check=check_top_p,
        picture=draw_top_p,
        part="sampler",
    ),
    Exercise(
        id="05.3",
        notebook=NOTEBOOK,
        slug="sample",
        title="From logits to tokens, a stream for each request",
        target="yaie.engine.sampling:SamplingKernel.sample",
        task=(
            "Put it together, in the order temperature, top-k, top-p, min-p, draw. Rows with "
            "temperature 0 take the argmax. You have `check_logits(logits)`, which refuses NaN; "
            "`_column(name, value, logits)`, which makes a column of a parameter; the filters "
            "`self.top_k`, `self.top_p`, `self.min_p`; and `self.draw(probabilities, generators)`, "
            "which draws a token for each row from the generator of that row."
        ),
        difficulty=3,
        minutes=25,
        hints=(
            "A batch holds two kinds of rows. Give every row its argmax first; then take out those "
            "whose temperature is above 0, send them through the filters, and write what they draw "
            "over their argmax.",
            "Everything that belongs to a row has to be taken out with it: logits, temperature, "
            "top_p, top_k, min_p, and its generator. Then nothing that happens to a row depends on "
            "the others. The largest logit minus itself is 0, and 0 divided by any temperature is "
            "0: subtract the row's maximum before you divide.",
            "With a column of each parameter:\n\n"
            "    check_logits(logits)\n"
            "    generators = ...                   # a None for each row if none came\n"
            '    temperature = _column("temperature", temperature, logits)\n'
            "    tokens = logits.argmax(dim=-1)\n"
            "    drawn = ...                        # indices of rows above 0; return if none\n"
            '    top_p = _column("top_p", top_p, logits)[drawn]   # and the same for two more\n'
            "    scaled = logits[drawn].float()\n"
            "    scaled = (scaled - ...) / temperature[drawn]\n"
            "    scaled = ...                       # three filters\n"
            "    tokens[drawn] = self.draw(..., [generators[i] for i in drawn.tolist()])",
        ),
        proves=(
            "In 17 distributions of 2,000 draws each no count was off by more than chance; six "
            "requests drew the same tokens alone and in four batches; 15 bad inputs were refused."
        ),
        check=check_sample,
        picture=draw_sample,
        part="sampler",
    ),
]
