"""What a block is made of: an attention branch and an MLP branch, each added to the hidden state.

    h' = h + Attn(h),  h'' = h' + Mlp(h')        sequential
    h'' = h + Attn(h) + Mlp(h)                   parallel

Names differ by architecture, so the branches are found by what they do. The modules whose outputs
are added are those that leave the hidden state unchanged, to the last bit, when both give zeros. To
which branch another module belongs is seen by disturbing its output while the other branch is
silent. Attention here is whatever mixes positions: a Mamba mixer or a convolution, too.
"""

import re
from dataclasses import dataclass

import torch
from torch import nn

from shoal.core.errors import UnsupportedModelError
from shoal.core.mask import Part
from shoal.models.probing import Called, Probe

Updates = tuple[tuple[str, ...], ...]
"""Paths of the modules whose outputs are added, one group per branch."""

OUTPUTS = frozenset(
    {
        "c_proj",
        "dense",
        "dense_4h_to_h",
        "down_proj",
        "fc2",
        "fc_out",
        "linear_out",
        "lin2",
        "o_proj",
        "out_lin",
        "out_proj",
        "output_linear",
        "proj_down",
        "w2",
        "w_o",
        "w_out",
        "wo",
    }
)
"""What architectures call the last projection of a branch."""

_MIXERS = re.compile(
    r"attention|attn|mamba|mixer|conv|ssm|recurrent|delta|rwkv|lstm|retention", re.IGNORECASE
)


@dataclass(frozen=True)
class Branch:
    """One branch of a block.

    Attributes:
        part: Attention or MLP.
        updates: The modules, inside the block, whose outputs are added to the hidden state.
        members: Paths of the modules that serve this branch only.
        heavy: Modules besides the updates that need not run where its output is not wanted.
        outputs: Parameters that make the branch give zeros when they are zeros; empty where none
            were found.
    """

    part: Part
    updates: tuple[Called, ...]
    members: tuple[str, ...]
    heavy: tuple[Called, ...] = ()
    outputs: tuple[str, ...] = ()


@dataclass(frozen=True)
class BlockBranches:
    """The branches of one block.

    Attributes:
        attn: What mixes positions, or None.
        mlp: What works on each position, or None.
        sequential: Whether the MLP reads what the attention has added to.
        shared: Paths of modules that serve both branches; the empty path is the block itself.
        why_not: Why there are no branches, where there are none.
    """

    attn: Branch | None
    mlp: Branch | None
    sequential: bool
    shared: tuple[str, ...]
    why_not: str = ""

    def branch(self, part: Part) -> Branch | None:
        """The branch of a part."""
        return self.attn if part is Part.ATTN else self.mlp

    @property
    def paired(self) -> bool:
        """Whether there are both."""
        return self.attn is not None and self.mlp is not None

    @property
    def separable(self) -> bool:
        """Whether the branches can come from different blocks."""
        return self.paired and self.sequential and not self.shared

    def part_of(self, name: str) -> Part | None:
        """The branch that a module or tensor inside the block belongs to; None where both do."""
        found: Part | None = None
        longest = -1
        for branch in (self.attn, self.mlp):
            for member in branch.members if branch else ():
                if (name == member or name.startswith(member + ".")) and len(member) > longest:
                    found, longest = branch.part if branch else None, len(member)
        return found


def find_branches(layers: nn.ModuleList, probe: Probe) -> tuple[BlockBranches, ...]:
    """Find the branches of every block.

    Args:
        layers: The blocks.
        probe: What each block is called with.

    Returns:
        One entry per block; without branches, and with the reason, for a block that has none.

    Raises:
        UnsupportedModelError: If no block is made of such branches, with the reason.
    """
    found: list[BlockBranches] = []
    known: dict[object, Updates] = {}
    with torch.inference_mode():
        for i, block in enumerate(layers):
            watched = _Block(block, probe, i)
            signature = (type(block), tuple((n, type(m)) for n, m in block.named_modules()))
            updates = known.get(signature)
            try:
                if updates is None or not watched.adds_up(updates):
                    updates = watched.updates()
            except UnsupportedModelError as error:
                found.append(BlockBranches(None, None, True, (), str(error)))
                continue
            known[signature] = updates
            found.append(watched.branches(updates))
    if all(branches.why_not for branches in found):
        raise UnsupportedModelError(found[0].why_not)
    return tuple(found)


class _Block:
    """One block and a hidden state to try it on."""

    def __init__(self, block: nn.Module, probe: Probe, index: int) -> None:
        self.block, self.probe, self.index = block, probe, index
        self.hidden = probe.entry(index)
        self.called = probe.called(index)
        self.out = probe.run(index)

    def adds_up(self, updates: Updates) -> bool:
        """Whether the block does nothing once all these modules give zeros, and not before."""
        if not self._is_identity(sum(updates, ())):
            return False
        return len(updates) == 1 or not any(map(self._is_identity, updates))

    def _is_identity(self, silent: tuple[str, ...]) -> bool:
        return torch.equal(self.probe.run(self.index, silent=silent), self.hidden)

    def updates(self) -> Updates:
        """The modules whose outputs are added to the hidden state, one group per branch."""
        pair = self._pair()
        rest = self._outermost_that_matter(pair)
        if not rest:
            return tuple((path,) for path in pair)
        # A silent norm keeps several modules silent that it feeds; those are what is added.
        for i in range(len(pair)):
            others = tuple((path,) for j, path in enumerate(pair) if j != i)
            groups = (*others[:i], rest, *others[i:])
            if self.adds_up(groups):
                return groups
        raise self._unknown()

    def _pair(self) -> tuple[str, ...]:
        candidates = [c.path for c in self.called if c.wide]
        for j in range(len(candidates) - 1, -1, -1):
            last = candidates[j]
            if torch.equal(self.probe.run(self.index, silent=(last,)), self.out):
                continue
            if self._is_identity((last,)):
                return (last,)
            for first in reversed(candidates[:j]):
                nested = last.startswith(first + ".") or first.startswith(last + ".")
                if not nested and self._is_identity((first, last)):
                    return (first, last)
        raise self._unknown()

    def _unknown(self) -> UnsupportedModelError:
        return UnsupportedModelError(
            f"block {self.index} ({type(self.block).__name__}) is not its input plus what an "
            "attention and an MLP add to it (a norm after the addition, scaled residuals, or a "
            "third branch)"
        )

    def _outermost_that_matter(self, silent: tuple[str, ...]) -> tuple[str, ...]:
        """The modules that still add something while others are silent."""
        wide = [c.path for c in self.called if c.wide]
        apart = [
            path
            for path in wide
            if not any((path + ".").startswith(s + ".") or s.startswith(path + ".") for s in silent)
            and not any(path.startswith(other + ".") for other in wide)
        ]
        return tuple(path for path in apart if self._matters(path, silent))

    def branches(self, updates: Updates) -> BlockBranches:
        """Everything about the branches, given the modules that are added."""
        if len(updates) == 1:
            part = Part.ATTN if any(map(self._mixes, updates[0])) else Part.MLP
            own = tuple(name for name, _ in self.block.named_children())
            branch = self._branch(part, updates[0], own)
            attn, mlp = (branch, None) if part is Part.ATTN else (None, branch)
            return BlockBranches(attn, mlp, sequential=True, shared=())
        first, last = updates
        # Attention comes first wherever names do not say otherwise.
        swapped = any(map(self._mixes, last)) and not any(map(self._mixes, first))
        attention, feed_forward = (last, first) if swapped else (first, last)
        members: dict[Part | None, list[str]] = {Part.ATTN: [], Part.MLP: [], None: []}
        names = [name for name, _ in self.block.named_children()]
        self._assign(names, attention, feed_forward, members)
        if any(True for _ in self.block.parameters(recurse=False)):
            members[None].append("")
        half = self.probe.run(self.index, silent=feed_forward)
        rest = self.probe.run(self.index, silent=attention, hidden=half)
        return BlockBranches(
            self._branch(Part.ATTN, attention, tuple(members[Part.ATTN])),
            self._branch(Part.MLP, feed_forward, tuple(members[Part.MLP])),
            sequential=not swapped and torch.equal(rest, self.out),
            shared=tuple(members[None]),
        )

    def _branch(self, part: Part, updates: tuple[str, ...], members: tuple[str, ...]) -> Branch:
        called = {c.path: c for c in self.called}
        heavy = tuple(
            called[path]
            for path in members
            if path in called
            and called[path].wide
            and not any((update + ".").startswith(path + ".") for update in updates)
            and any(p.dim() > 1 for p in self.block.get_submodule(path).parameters())
        )
        wanted = tuple(called[update] for update in updates)
        return Branch(part, wanted, members, heavy, self._outputs(updates, members))

    def _outputs(self, updates: tuple[str, ...], members: tuple[str, ...]) -> tuple[str, ...]:
        """Parameters that silence the branch: its output projections, or the updates' own."""
        inside = [
            name
            for name, _ in self.block.named_parameters()
            if any(name == m or name.startswith(m + ".") for m in members)
        ]
        projections = [name for name in inside if _is_output(name)]
        own = [name for name in inside if name.rpartition(".")[0] in updates]
        last = [c.path for c in self.called if any(n.rpartition(".")[0] == c.path for n in inside)]
        ends = [name for name in inside if last and name.rpartition(".")[0] == last[-1]]
        silent = self.probe.run(self.index, silent=updates)
        for names in (projections, own, [*projections, *own], ends):
            zeroed = self.probe.run(self.index, zeroed=names)
            if names and torch.equal(zeroed, silent):
                return tuple(names)
        return ()

    def _assign(
        self,
        paths: list[str],
        attention: tuple[str, ...],
        feed_forward: tuple[str, ...],
        members: dict[Part | None, list[str]],
    ) -> None:
        """Sort modules by the branch that they serve, looking inside those that serve both."""
        ran = {c.path for c in self.called}
        for path in paths:
            module = self.block.get_submodule(path)
            inner = [f"{path}.{name}" for name, _ in module.named_children()]
            holds = any(True for _ in module.parameters(recurse=False))
            if path not in ran and inner and not holds:
                # Containers are not called themselves.
                self._assign(inner, attention, feed_forward, members)
                continue
            serves_attention = path in ran and self._matters(path, feed_forward)
            serves_mlp = path in ran and self._matters(path, attention)
            if serves_attention and serves_mlp and inner and not holds:
                self._assign(inner, attention, feed_forward, members)
            elif serves_attention != serves_mlp:
                members[Part.ATTN if serves_attention else Part.MLP].append(path)
            elif any(True for _ in module.parameters()):
                # What nothing uses, as a decoder's attention to an encoder, goes with either.
                members[None if self._used(path) else Part.ATTN].append(path)

    def _used(self, path: str) -> bool:
        """Whether the block computes anything with the parameters of a module."""
        names = [f"{path}.{n}" for n, _ in self.block.get_submodule(path).named_parameters()]
        return not torch.equal(self.probe.run(self.index, zeroed=names), self.out)

    def _matters(self, path: str, silent: tuple[str, ...]) -> bool:
        plain = self.probe.run(self.index, silent=silent)
        return not torch.equal(self.probe.run(self.index, silent=silent, disturbed=path), plain)

    def _mixes(self, path: str) -> bool:
        """Whether a module, or what contains it, mixes positions, by name."""
        parts = path.split(".")
        classes = [
            type(self.block.get_submodule(".".join(parts[: i + 1]))).__name__
            for i in range(len(parts))
        ]
        names = [name for name in classes if "norm" not in name.lower()]
        return any(map(_MIXERS.search, names)) or "att" in path.lower()


def _is_output(name: str) -> bool:
    """Whether a parameter belongs to the last projection of a branch, by its name."""
    return any(part.removesuffix("_bias") in OUTPUTS for part in name.split(".")[-2:])
