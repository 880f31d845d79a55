"""Token tries and radix trees, against lists of prompts and flat dicts of prefixes."""

import copy
import sys
from array import array

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from oracles import (
    PrefixOracle,
    agrees,
    all_nodes,
    check_tree,
    contents,
    examples,
    extends,
    path_of,
    prompts,
)

from yaie.course.lessons.trie import TokenTrie
from yaie.engine.kv_cache import BlockPool
from yaie.engine.prefix_cache import RadixCache
from yaie.engine.radix import RadixTree, shared_prefix_length
from yaie.engine.radix_node import as_key, as_token_ids

BLOCK_SIZES = st.sampled_from([1, 4, 16])


def sized(*strategies):
    """A block size, and what each of the functions draws for it."""
    return BLOCK_SIZES.flatmap(lambda n: st.tuples(st.just(n), *(draw(n) for draw in strategies)))


def several_prompts(block_size: int):
    return st.lists(prompts(block_size), max_size=8)


def naive_shared(a, b) -> int:
    return max(n for n in range(min(len(a), len(b)) + 1) if list(a[:n]) == list(b[:n]))


# ------------------------------------------------------------------------------------- lengths


@given(prompts(4), prompts(4))
@examples(200)
def test_shared_prefix_length(a, b):
    assert shared_prefix_length(a, b) == naive_shared(a, b) == shared_prefix_length(b, a)


@given(st.lists(st.integers(0, sys.maxunicode)), st.randoms())
@examples(200)
def test_a_key_has_the_tokens(tokens, rng):
    """Also those that are half of a surrogate pair or a byte order mark as text."""
    tokens = [*tokens, *rng.choices([0xFEFF, 0xFFFE, 0xD800, 0xDFFF, 0, 10], k=4)]
    rng.shuffle(tokens)
    key = as_key(tokens)
    assert as_key(key) is key and as_token_ids(key) == tokens and len(key) == len(tokens)
    for other in (tuple(tokens), array("q", tokens), torch.tensor(tokens), np.array(tokens)):
        assert as_key(other) == key


@pytest.mark.parametrize(
    ("tokens", "error", "message"),
    [
        ([1, -1], ValueError, "token_ids must be ints from 0 to 1,114,111 in one dimension"),
        ([0x110000], ValueError, "token_ids must be ints"),
        (torch.tensor([0.5]), TypeError, "token_ids must be ints"),
        (torch.tensor([[1, 2]]), TypeError, "in one dimension"),
        (["a"], TypeError, "token_ids must be ints"),
        (None, TypeError, "token_ids must be ints"),
        (b"abcd", TypeError, "token_ids must be ints, got bytes"),
    ],
)
def test_what_is_no_token_is_refused(tokens, error, message):
    with pytest.raises(error, match=message):
        RadixTree().match(tokens)


def test_a_tensor_finds_what_a_list_put_there():
    tree = RadixTree(2)
    tree.insert(torch.tensor([1, 2, 3, 4, 5]), ["a", "b"])
    assert tree.match([1, 2, 3, 4]).values == ["a", "b"]
    assert tree.match(torch.tensor([1, 2, 9])).length == 2
    cache = RadixCache(BlockPool(2), 2)
    cache.insert(torch.tensor([1, 2]), cache.pool.allocate(1))
    assert cache.match_length(np.array([1, 2, 3])) == cache.match([1, 2, 3]).length == 2


@given(st.integers(1, 40), st.integers(0, 300), st.integers(0, 300), st.integers(0, 40))
@examples(300)
def test_where_an_edge_and_a_prompt_part(block_size, agree, rest, start):
    """Wherever the two differ: the pieces that are compared double in length."""
    tree = RadixTree(block_size)
    whole = -(-(agree + 1) // block_size) * block_size
    key = [7] * agree + [8] * (whole - agree)
    prompt = [5] * start + [7] * agree + [9] * rest
    shared = tree._shared_tokens(as_key(key), as_key(prompt), start)
    assert shared == agree // block_size * block_size
    assert (
        tree._shared_tokens(as_key(key), as_key([*prompt[:start], *key, *prompt]), start) == whole
    )


# ------------------------------------------------------------------------------------- token trie


@given(st.lists(prompts(2), max_size=8), prompts(2))
@examples(200)
def test_trie_finds_what_a_list_of_prompts_says(inserted, query):
    trie = TokenTrie()
    for i, tokens in enumerate(inserted):
        trie.insert_request(i, tokens)
    longest = max((naive_shared(tokens, query) for tokens in inserted), default=0)
    begin = [i for i, t in enumerate(inserted) if longest and t[:longest] == query[:longest]]
    assert trie.find_shared_prefixes(query) == (sorted(begin, key=str), longest)
    distinct = {tuple(tokens[:n]) for tokens in inserted for n in range(len(tokens) + 1)}
    assert trie.num_nodes == len(distinct | {()})


def test_trie_graph():
    trie = TokenTrie()
    trie.insert_request("a", [5, 8])
    trie.insert_request("b", [5])
    graph = trie.get_shared_computation_graph()
    assert (graph["tokens"], graph["request_count"], graph["request_ids"]) == ([], 2, ["a", "b"])
    (five,) = graph["children"]
    assert (five["tokens"], five["request_count"]) == ([5], 2)
    (eight,) = five["children"]
    assert (eight["tokens"], eight["request_count"], eight["children"]) == ([8], 1, [])


# ------------------------------------------------------------------------------------- match


@given(sized(several_prompts, prompts))
@examples(200)
def test_match_is_what_a_list_of_prompts_says(drawn):
    block_size, inserted, query = drawn
    tree = RadixTree(block_size)
    for tokens in inserted:
        tree.insert(tokens)
    found = tree.match(query)
    shared = max((naive_shared(tokens, query) for tokens in inserted), default=0)
    assert found.length == shared // block_size * block_size
    assert path_of(found.node)[1] == tuple(query[: found.length])


@given(sized(several_prompts))
@examples(200)
def test_no_node_without_a_reason(drawn):
    """A node for each place where sequences end or part, and no other; in whatever order."""
    block_size, inserted = drawn
    inserted = [tuple(t[: len(t) // block_size * block_size]) for t in inserted]
    ends = {tokens for tokens in inserted if tokens}
    forks = {a[: naive_shared(a, b) // block_size * block_size] for a in inserted for b in inserted}
    for order in (inserted, inserted[::-1], sorted(inserted)):
        tree = RadixTree(block_size)
        for tokens in order:
            tree.insert(tokens)
        assert tree.num_nodes == len(ends | forks | {()})
        check_tree(tree)


def test_a_namespace_is_there_while_it_has_tokens():
    tree = RadixTree(2)
    for i in range(100):
        found = tree.match([1, 2], namespace=f"salt {i}")
        tree.lock(found.node)
        tree.unlock(found.node)
        assert tree.insert([1], namespace=f"salt {i}")[1] == 0
        assert tree.prune(found.node) == []
    assert (list(tree.roots), tree.num_nodes) == ([""], 1)
    for i in range(100):
        leaf, _ = tree.insert([1, 2], [i], namespace=f"salt {i}")
    assert (len(tree.roots), tree.num_nodes) == (101, 201)
    assert tree.prune(leaf) == [99]
    assert tree.evict(100) == list(range(99))
    tree.insert([1, 2], ["a"])
    assert tree.evict(1) == ["a"]
    assert (list(tree.roots), tree.num_nodes) == ([""], 1)
    tree.insert([1, 2], ["b"], namespace="salt 0")
    assert tree.match([1, 2], namespace="salt 0").values == ["b"]
    check_tree(tree)


def test_bad_arguments_are_named_and_change_nothing():
    with pytest.raises(ValueError, match="block_size must be at least 1, got 0"):
        RadixTree(0)
    tree = RadixTree(2)
    leaf, _ = tree.insert([1, 2, 3, 4], ["a", "b"])
    with pytest.raises(ValueError, match="values must have one entry for each of the 2"):
        tree.insert([7, 7, 7, 7], ["a"])
    for num_tokens in (-2, 0, 1, 3, 4, 6):
        with pytest.raises(ValueError, match="num_tokens"):
            tree.split(leaf, num_tokens)
    with pytest.raises(ValueError, match="num_tokens"):
        tree.split(tree.root, 2)
    with pytest.raises(ValueError, match="not locked"):
        tree.unlock(leaf)
    assert contents(tree) == {("", (1, 2)): "a", ("", (1, 2, 3, 4)): "b"}
    tree.evict(2)
    with pytest.raises(ValueError, match="evicted before it was locked"):
        tree.lock(leaf)
    assert tree.num_nodes == 1 and tree.num_evictable == 0
    leaf, _ = tree.insert([1, 2], ["a"])
    tree.lock(leaf)
    with pytest.raises(ValueError, match="values must have one entry for each block of 2"):
        tree.extend(leaf, [3, 4, 5], ["b"])
    tree.unlock(leaf)
    tree.insert_request("r", [1, 2])
    tree.lock(leaf)
    assert not tree.extend(leaf, [3, 4], ["b"]), "the request does not go on like that"
    check_tree(tree)


# ------------------------------------------------------------------------------------- eviction


def test_a_match_that_lost_its_tail_cannot_be_locked():
    """Its last value may stand for something else by then."""
    tree = RadixTree(2)
    tree.insert([1, 2, 3, 4, 5, 6], ["a", "b", "c"])
    found = tree.match([1, 2, 3, 4, 5, 6])
    assert tree.evict(1) == ["c"]
    with pytest.raises(ValueError, match="evicted before it was locked"):
        tree.lock(found.node)
    assert tree.num_evictable == 2
    tree.lock(tree.match([1, 2, 3, 4, 5, 6]).node)
    assert tree.num_evictable == 0
    check_tree(tree)


randoms = st.randoms(use_true_random=False)


class TreeMachine(RuleBasedStateMachine):
    """Insertions, matches, locks and evictions in any order, against the flat oracle."""

    @initialize(block_size=BLOCK_SIZES)
    def start(self, block_size):
        self.tree, self.oracle = RadixTree(block_size), PrefixOracle(block_size)
        self.locked = []
        self.seen = [[]]
        self.fresh = 0

    def prompt(self, rng):
        """The beginning of tokens seen before, new blocks, and a tail that fills none."""
        size, old = self.tree.block_size, rng.choice(self.seen)
        tokens = old[: rng.randint(0, len(old))]
        for _ in range(rng.randint(0, 3)):
            tokens = [*tokens, *[0] * (size - 1), rng.randint(0, 2)]
        self.seen = [*self.seen[-9:], tokens]
        return tokens + [0] * rng.randint(0, size - 1), rng.choice(["", "", "tenant"])

    @rule(rng=randoms)
    def insert(self, rng):
        tokens, namespace = self.prompt(rng)
        values = list(range(self.fresh, self.fresh + len(tokens) // self.tree.block_size))
        self.fresh += len(values)
        node, before = self.tree.insert(tokens, values, namespace)
        assert before == self.oracle.insert(tokens, values, namespace)
        whole = len(tokens) // self.tree.block_size * self.tree.block_size
        assert path_of(node, namespace) == (namespace, tuple(tokens[:whole]))

    @rule(rng=randoms)
    def match(self, rng):
        tokens, namespace = self.prompt(rng)
        found = self.tree.match(tokens, namespace)
        assert found.values == self.oracle.match(tokens, namespace)
        path = (namespace, tuple(tokens[: found.length]))
        assert path_of(found.node, namespace) == path
        if rng.random() < 0.5:
            self.tree.lock(found.node)
            self.oracle.lock(path)
            self.locked.append((found.node, path))

    @precondition(lambda self: self.locked)
    @rule(rng=randoms)
    def unlock(self, rng):
        node, path = self.locked.pop(rng.randrange(len(self.locked)))
        assert path_of(node, path[0]) == path, "a locked node moved"
        self.tree.unlock(node)
        self.oracle.lock(path, -1)

    @precondition(lambda self: self.locked)
    @rule(rng=randoms)
    def extend(self, rng):
        """In place if a single lock holds a leaf; if not, nothing changes, as `agree` sees."""
        place = rng.randrange(len(self.locked))
        node, path = self.locked[place]
        new = [0, rng.randint(0, 2)] if self.tree.block_size == 1 else self.prompt(rng)[0]
        tokens = [*path[1], *new[: len(new) // self.tree.block_size * self.tree.block_size]]
        values = list(range(self.fresh, self.fresh + len(tokens) // self.tree.block_size))
        self.fresh += len(values)
        first = len(path[1]) // self.tree.block_size
        is_leaf = path[1] and not any(extends(held, path) for held in self.oracle.value)
        done = self.tree.extend(node, tokens[len(path[1]) :], values[first:])
        assert done == bool(is_leaf and self.oracle.locks[path] == 1)
        if done:
            self.oracle.insert(tokens, values, path[0])
            self.oracle.lock(path, -1)
            path = (path[0], tuple(tokens))
            self.oracle.lock(path)
            self.locked[place] = (node, path)

    @rule(rng=randoms)
    def evict(self, rng):
        number = rng.randint(-1, 5)
        assert sorted(self.tree.evict(number)) == sorted(self.oracle.evict(number))

    @rule(rng=randoms)
    def find_changes_nothing(self, rng):
        (tokens, space), size = self.prompt(rng), self.tree.block_size
        clock = self.tree._clock
        self.tree.find_shared_prefixes(tokens)
        assert self.tree.match_length(tokens, space) == size * len(self.oracle.held(tokens, space))
        self.tree.get_shared_computation_graph()
        assert self.tree._clock == clock  # and `agree` compares the rest

    @invariant()
    def agree(self):
        if hasattr(self, "tree"):
            agrees(self.tree, self.oracle)

    def teardown(self):
        if not hasattr(self, "tree"):
            return
        for node, path in self.locked:
            self.tree.unlock(node)
            self.oracle.lock(path, -1)
        held = self.tree.num_values
        assert [*map(len, (self.tree.evict(held + 1), self.oracle.evict(held + 1)))] == [held] * 2
        assert self.tree.num_nodes == len(self.tree.roots)
        agrees(self.tree, self.oracle)


TestTreeMachine = TreeMachine.TestCase
TestTreeMachine.settings = examples(40, steps=40)


# ------------------------------------------------------------------------------------- requests


@given(
    sized(lambda n: st.dictionaries(st.integers(0, 20), prompts(n), max_size=7), prompts), randoms
)
@examples(150)
def test_requests_that_come_share_prefixes(drawn, rng):
    size, requests, query = drawn
    tree = RadixTree(size)

    def longest(tokens):
        return {
            i: min(naive_shared(t, tokens), len(t) // size * size) // size * size
            for i, t in requests.items()
        }

    coming, requests = requests, {}
    for request_id in rng.sample(sorted(coming), len(coming)):
        requests[request_id] = coming[request_id]
        tree.insert_request(request_id, requests[request_id])
        before = describe(tree)
        shared = longest(query)
        length = max(shared.values(), default=0)
        ids = sorted((i for i, n in shared.items() if length and n == length), key=str)
        assert tree.find_shared_prefixes(query) == (ids, length)
        assert describe(tree) == before
        assert tree.get_shared_computation_graph()["request_count"] == len(requests)
        check_tree(tree)
        held = {
            ("", tuple(t[:n])) for t in requests.values() for n in range(size, len(t) + 1, size)
        }
        assert contents(tree).keys() == held


def describe(tree: RadixTree):
    """All that is in a tree, to compare before and after."""
    return sorted(
        (path, node.values, node.lock_count, node.last_access, sorted(node.request_ids, key=str))
        for path, node in all_nodes(tree)
    )


def test_tokens_that_no_request_begins_with_are_not_a_shared_prefix():
    tree = RadixTree()
    tree.insert([1, 2, 3])
    assert tree.find_shared_prefixes([1, 2, 3]) == ([], 0)
    tree.insert_request("r", [1, 2])
    assert tree.find_shared_prefixes([1, 2, 3]) == (["r"], 2)


def test_what_was_removed_leaves_nothing_behind():
    tree = RadixTree()
    for i in range(1000):
        leaf, _ = tree.insert([i, i + 1])
        tree.prune(leaf)
    assert tree.num_nodes == 1
    assert len(tree._heap) < 100


# ------------------------------------------------------------------------------------- long


def test_prompts_longer_than_any_recursion_limit():
    long = list(range(100_000))
    trie = TokenTrie()
    trie.insert_request("r", long[:20_000])
    assert trie.find_shared_prefixes(long) == (["r"], 20_000)
    assert trie.get_shared_computation_graph()["request_count"] == 1

    tree = RadixTree()
    for end in range(1, 1500):  # a chain of nodes of one token
        tree.insert(long[:end])
    tree.insert_request("r", long)
    node = tree.match(long).node
    tree.lock(node)
    assert tree.evict(1) == []
    tree.unlock(node)
    assert tree.find_shared_prefixes(long) == (["r"], 100_000)
    graph = tree.get_shared_computation_graph()
    assert sum(1 for _ in all_nodes(tree)) == tree.num_nodes == 1501
    assert graph["children"][0]["request_ids"] == ["r"]


def test_copies_are_independent():
    tree = RadixTree(2)
    tree.insert([1, 2, 3, 4], ["a", "b"])
    other = copy.deepcopy(tree)
    other.evict(2)
    assert tree.match([1, 2, 3, 4]).values == ["a", "b"]
    check_tree(other)


def test_caches_side_by_side_find_what_they_should(monkeypatch):
    """Without the others, which are not installed; and one that finds too little is refused."""
    from yaie.bench import prefixes

    own = {name: prefixes.CACHES[name] for name in ("tree", "cache")}
    monkeypatch.setattr(prefixes, "CACHES", own)
    rows = prefixes.run(lengths=(64,), sizes=(1, 16), rounds=2)
    assert [row["work"] for row in rows] == [*prefixes.WORK] * 2
    assert all(row["us"].keys() == own.keys() for row in rows)
    monkeypatch.setattr(prefixes.Tree, "match", lambda self, held: 16)
    with pytest.raises(RuntimeError, match=r"Tree: hit found .* tokens, not 64"):
        prefixes.run(lengths=(64,), sizes=(1,), rounds=1)


def test_the_benchmark_measures_what_it_says(monkeypatch):
    """At small sizes: that its trees have the shapes it names, and its figures are all there."""
    from yaie.bench import radix as bench

    prompt = list(range(64))
    assert bench._one_edge(prompt).num_nodes == 2
    assert bench._node_a_block(prompt).num_nodes == 5
    assert bench._differs_at_the_end(prompt).match(prompt).length == 48
    monkeypatch.setattr(bench, "PROMPT_TOKENS", 320)
    monkeypatch.setattr(bench, "SEQUENCES", (1, 20))
    monkeypatch.setattr(bench, "LEAVES", (1, 20))
    results = bench.run(rounds=1)
    assert list(results["match_ms"]) == list(bench.SHAPES)
    assert list(results["match_ms_by_tokens"]["one long edge"]) == [80, 160, 320, 1280]
    assert list(results["match_ms_by_sequences"]) == [1, 20]
    assert list(results["evict_us_by_leaves"]) == [1, 20]
