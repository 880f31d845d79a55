"""What a learner should be able to say at the end: two questions per notebook, with answers.

The objectives above them are read from the notebooks themselves.
"""

import html
import json
import re

from yaie.course.core.notebook import Markdown
from yaie.course.core.paths import NOTEBOOKS

# By notebook: a question, and its answer indented below it.
_TEXT = """
# 00_start_here
A question is asked a second time. Which part of the work is saved, and which not?
    The keys and values of the prompt are found in the cache, so its prefill is skipped, except
    for at least one token, whose logits are needed. Every token of the answer takes its decode step
    again.
Name the steps of a token, from the prompt to the text.
    Tokenizer, request, scheduler (prefix matched, blocks taken), batch, model over the paged
    cache, sampler, and the text as a stream.
# 01_attention_and_kv_cache
A decode step of one sequence multiplies each weight with one number. What limits it?
    Reading the weights: two operations for every weight read, where a processor could do hundreds
    in the time. So decoding waits for memory.
Three new tokens come after a past of five. Which keys may the first of them see?
    Six: the five of the past and its own. The mask is aligned at the bottom right.
# 02_radix_tree
Why is a shared prefix worth keeping, and a shared passage in the middle not?
    Keys and values of a token depend on all tokens before it, through the layers, and on its
    position. Only with the same beginning are they the same.
Which nodes may be evicted, and in which order?
    Leaves that no request has locked, the least recently used first.
# 03_paged_kv_cache
A block has 16 tokens. Where does token 37 of a request with block table [7, 2, 9] lie?
    37 = 2 × 16 + 5, so in block 9 at offset 5: slot 9 × 16 + 5 = 149.
A fork shares a block that is half full. When is it copied?
    At the first write into it, by the request that writes, if the other still uses it:
    copy-on-write. Full blocks are never written again, so never copied.
# 04_prefix_sharing
A whole prompt is in the cache. Why is its last token computed anyway?
    Its logits choose the next token, and logits are not cached.
Why is a matched prefix locked before blocks are counted and evicted?
    Otherwise room for the request might be made by evicting its own prefix.
# 05_sampling
Probabilities are 0.5, 0.4 and 0.1, and top-p is 0.8. Which tokens are kept?
    Two: the token with which the sum reaches 0.8 belongs to them.
How does an engine keep a request's tokens independent of the rest of the batch?
    Each request draws from its own random stream, which its seed determines; and its logits do not
    depend on its neighbors, up to rounding.
# 06_scheduling
What do decoding requests gain from chunked prefill?
    A step has a budget of tokens; decodes come first, and a long prompt gets what is left, in
    pieces. So no decode waits for the whole prompt between two tokens.
A running request is preempted. What is lost?
    Its keys and values, which are computed again. Its tokens are kept, the generated ones as
    well.
# 07_online_softmax
A larger score arrives. What happens to the sums so far?
    Both the sum of weights and the weighted sum of values are multiplied by
    exp(old maximum − new maximum).
What do you need of two partial results of attention to merge them?
    The output and the log-sum-exp of each. Then the order does not matter.
# 08_flash_attention
What does FlashAttention save: operations or bytes?
    Bytes. The scores never go to main memory. The operations are the same, and in the backward
    pass there are more, since the scores are computed again.
Which tile decides how often keys and values are read?
    That of the queries: all keys are read once for each tile of queries.
# 09_gpu_memory_and_roofline
What is arithmetic intensity, and what is the ridge?
    Operations for each byte moved. At the ridge, peak rate over bandwidth, memory and arithmetic
    take equally long; below it memory decides.
A benchmark says that a kernel moved 9,000 GB/s on a GPU that copies 4,300. What may have
happened?
    The data came from a cache, or the kernel did not run, or not all of it: flush or rotate the
    buffers, poison the outputs, compare the results.
# 10_roofline_of_your_machine
A processor reads 40 GB/s. How many tokens per second can a model of 135 million weights reach in
float32, and in Q8_0?
    At most 40e9 / (135e6 × 4) = 74, and 279 with 34 bytes for 32 weights: every weight is read for
    every token.
A sum of products in vectors reaches only half of the rate of memory. What may be missing?
    Sums that do not wait for each other: an addition takes some cycles until the next one can use
    its result, so several rows are added up side by side.
# 11_first_triton_kernels
How many bytes does a fused RMSNorm move for a row of n numbers, two bytes each?
    4n: the row read once and written once. The weight is shared by all rows.
What can Triton's interpreter not show?
    Races, accesses out of bounds, time, and bfloat16 as the GPU computes it.
# 12_triton_matmul
Why do tiles make a matrix product faster?
    A tile of m × n results loads m + n numbers for each step instead of 2 × m × n, so each number
    that is loaded is used many times.
Why is the accumulator float32 if the inputs are float16?
    A long sum in float16 stops growing once the summands are below its last bit.
# 13_triton_attention
One sequence of 32,000 tokens is decoded. Why does a kernel with one program per head leave the
GPU idle, and what helps?
    There are fewer programs than SMs. Split the context among several programs, and merge
    their results by their log-sum-exps.
Which tiles of scores need a mask?
    Those that the diagonal crosses, and the last one if it is not full. Tiles beyond the diagonal
    are not computed at all.
# 14_first_cuda_kernel
A kernel reads out of bounds. When does the program learn of it?
    Later, at a call that waits for the GPU; the launch itself says only whether it could begin.
Thread i of a warp reads x[i], float32. How many sectors are that? And x[32 * i]?
    4, of 32 bytes each; and 32, one for each thread.
# 15_memory_barriers_warps
What is wrong with a barrier inside `if (threadIdx.x < 16)`?
    Not all threads of the thread block reach it, which is undefined: the kernel may hang.
Why does tile[32][33] have no bank conflicts where tile[32][32] has?
    With rows of 33 words, the words of a column lie in 32 different banks instead of in one.
# 16_tiled_matmul
What does a register tile add to a tile in shared memory?
    A number that was read from shared memory is used for several results, so the traffic to
    shared memory falls as well.
Which threads hold the numbers of a tensor core's operands?
    All lanes of a warp, a few registers each, in an order that the instruction fixes.
# 17_kv_memory_operations
Copies 3→5 and 5→7 are requested in one call. What may go wrong?
    Block 5 is read by one and written by the other: without an order it is a race.
How large is the relative error of a number stored as float8 e4m3?
    It stores 3 bits after the leading one, so at most 1/16, as long as it is within range.
# 18_flash_attention_cuda
Why may no thread return before a barrier, even if its row is past the end?
    The other threads wait for it there. It has to stay, and compute nothing.
What does cu_seqlens say?
    Where each sequence of a ragged batch begins, and where the last one ends.
# 19_paged_attention_cuda
Eight query heads share a KV head. What does a decode kernel gain by computing them together?
    Keys and values are read once instead of eight times, and they are nearly all that it reads.
What does version 2 of paged attention need that version 1 does not?
    A result, a maximum and a sum for each part of the context, and a second kernel that merges
    them.
# 20_radix_and_metadata_kernels
What are the offsets of the lengths [1, 2, 3, 4]?
    [0, 1, 3, 6, 10]: the exclusive prefix sum, followed by the total.
Where may a copy to the host hide in code that names none?
    In operators whose result has a size that only the device knows: nonzero, unique, x[mask],
    repeat_interleave without output_size.
# 21_sampling_kernels
How does Gumbel-max draw a token without a softmax?
    Add to each logit a Gumbel-distributed number, and take the largest.
How does one find the threshold of top-k without a sort?
    By histograms of the logits' own bits, from the leading ones on.
# 22_operators_gradients_graphs
What does an operator need besides its kernel for torch.compile?
    A schema, registered with torch.library, and a fake implementation that says which shapes come
    out.
What is fixed in a CUDA graph?
    The kernels, their order, their launch sizes and the addresses they use. Inputs change by
    writing to the same memory.
# 23_profiling_and_sanitizers
All kernels of a step become twice as fast, and the step takes as long as before. Why?
    The GPU waits for the CPU: each kernel begins when it is launched. Fewer launches or a graph
    help.
compute-sanitizer finds nothing in a program of torch. What may it have missed?
    Reads past a tensor that stay within the allocator's own memory, shapes that were not run, and
    faults between two kernels.
# 24_hopper_asynchrony
A thread waits for parity 0 of an mbarrier that is in phase 1. Does it wait?
    No. Phase 1 has parity 1, so the phase of parity 0 is the one before, which is complete.
A box of 64 × 64 numbers of 16 bits lies half outside its tensor. How many bytes are expected?
    8,192, as for every box: zeros arrive for what lies outside, and TMA counts them too.
# 25_hopper_matmul
A wgmma reads tiles that TMA has brought. Which fence does it need? And after stores of threads?
    wgmma_fence for the sums that the threads have written. Stores by threads to shared memory would
    need fence_proxy_async by each of them, then a barrier; TMA uses wgmma's own proxy.
64 tiles of c on 132 SMs: what can be done?
    Smaller tiles, which read more for each product; or each tile split along k in two parts, whose
    sums are added at the end. The rest of the SMs' time is lost either way if steps are few.
# 26_hopper_flash_attention
What does the softmax cost beside the products of attention, and where does it go?
    One exponential per score, half as long as the products with heads of 128. It runs while the
    tensor cores add the tile before to the output, and while they multiply for another consumer.
When may the output be rescaled, if its product is asynchronous?
    After the wait for that product: until then the accumulators belong to the tensor cores.
# 27_back_ends
A back end does not support its arguments. What should happen?
    It raises Unsupported before it has written anything; the next back end computes the result, and
    the user is warned once. If the user chose it by name, it is an error.
How do you know that a kernel of your own computes in the model?
    kernel_info() names the back end of each operator, and the tokens are those of the reference.
# 28_serving_and_benchmarks
Why does throughput grow with the batch, and why by less and less?
    The weights are read once for all sequences of a step. The keys and values that are read grow
    with the batch, and in the end arithmetic does too.
Requests arrive faster than they are served. What does the time to first token do?
    It grows without bound, because the queue does. Open-loop arrivals show that; a benchmark
    that waits for its answers cannot.
# 29_where_next
At which points does a layer on two ranks communicate?
    After the attention's output projection and after the MLP's down projection: an all-reduce
    of the hidden states each.
A draft of five tokens is wrong at the third. How many tokens does the pass yield?
    Three: two that agree, and the model's own choice.
"""


def _read(text: str) -> dict[str, list[tuple[str, str]]]:
    """The questions and answers of each notebook."""
    found: dict[str, list[tuple[str, str]]] = {}
    for section in text.split("\n# ")[1:]:
        name, _, rest = section.partition("\n")
        pairs = re.findall(r"((?:^\S.*\n)+)((?:^ .*\n?)+)", rest, re.MULTILINE)
        found[name] = [(" ".join(q.split()), " ".join(a.split())) for q, a in pairs]
    return found


QUESTIONS = _read(_TEXT)


def self_check() -> Markdown:
    """Every notebook's objectives and questions, answers folded."""
    parts = []
    for name, questions in QUESTIONS.items():
        lines = [f"<details><summary><b>{html.escape(_title(name))}</b></summary>", ""]
        lines += [f"- {objective}" for objective in objectives(name)]
        for question, answer in questions:
            asked, told = html.escape(question, False), html.escape(answer, False)
            lines += ["", f"<details><summary>{asked}</summary>", "", told, "", "</details>"]
        parts.append("\n".join([*lines, "", "</details>"]))
    return Markdown("\n\n".join(parts))


def objectives(name: str) -> list[str]:
    """What a notebook says that you can do at its end, and what tests it."""
    return [item.rstrip(",;.") for item in listed(_first_cell(name))]


def listed(text: str) -> list[str]:
    """The items of the list below the line "… you can", each as one line."""
    items, inside = [], False
    for line in text.splitlines():
        if re.search(r"\byou can\b", line) and not line.startswith("-"):
            inside = True
        elif inside and line.startswith("- "):
            items.append(line[2:])
        elif inside and line.startswith("  ") and items:
            items[-1] += " " + line.strip()
        elif inside and items:
            break
    return items


def _title(name: str) -> str:
    return _first_cell(name).splitlines()[0].removeprefix("# ")


def _first_cell(name: str) -> str:
    notebook = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8"))
    return "".join(notebook["cells"][0]["source"])
