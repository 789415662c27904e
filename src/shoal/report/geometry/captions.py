"""What the figures of a geometry are, and what to look for in them."""

CAPTIONS = {
    "profiles": (
        "Profiles by depth, all positions",
        "Upper panels: lengths of hidden states and distances between the positions of one "
        "sequence, with 95% intervals over sequences. Lower panels: the same as a log ratio to the "
        "dense model's ID profile, whose mean height over depths 1 and up is the gap. Look "
        "whether the pruned OOD profile lies nearer to zero than the dense one, at which depth "
        "the two part, and whether pruning moves the ID profile away. The states pass removed "
        "blocks unchanged.",
    ),
    "profiles_last": (
        "Profiles by depth, last positions",
        "The same of the last position of each sequence, which is what is read out. Distances are "
        "here between sequences, and have no interval.",
    ),
    "gaps": (
        "Gaps before and after pruning",
        "To the left, how far the OOD profile is from the ID profile. To the right, how pruning "
        "changes that: only an interval that lies wholly on one side of zero shows a direction.",
    ),
    "surrogates": (
        "Each block as a linear map",
        "Gain: by how much a block stretches distances between states, measured, and of its "
        "surrogate. Rank: in how many directions its update goes. Where the surrogate misses the "
        "threshold of R² its rank means little. States pass by each block, so their R² is high "
        "even where that of the update is not. An amplifier has a higher gain and a lower rank on "
        "OOD than on ID.",
    ),
    "signatures": (
        "Signature plane",
        "Each dot is a block; to the right it stretches OOD states more than ID ones, further down "
        "it does so in fewer directions. Look whether the removed blocks lie in the shaded "
        "quarter, and the kept ones elsewhere.",
    ),
    "removal": (
        "Removal and its controls",
        "Losses with 95% intervals over examples. If the plan removes the right sites, its OOD "
        "loss lies below that of as many other sites and of the best single block; if removing "
        "anything helps, it does not. The dashed line is the dense model.",
    ),
    "alphas": (
        "What the sites add, scaled",
        "From nothing (α = 0, removed) to what it is (α = 1, dense) and more. If the sites cause "
        "the loss, it rises with α at the selected sites and not at the others, and the gaps with "
        "it. The band is the 95% interval over examples, at the selected sites.",
    ),
    "inverse": (
        "Inverse surrogates",
        "The blocks stay, and a linear map behind them undoes what they do. If what they do is the "
        "cause, the inverse comes near removal, and random maps of the same size do not. With an "
        "R² near 1 the inverse is removal by construction. The best ridge was picked by these "
        "same losses.",
    ),
}
"""Figure -> what it is, and what to look for."""

MEANINGS = (
    ("ID", "in distribution: the task that the model is adapted to"),
    ("OOD", "out of distribution: the shifted task"),
    ("depth", "0 is the state that enters block 0; l the one that leaves block l − 1"),
    ("profile", "a mean per depth: length of states, distance and 1 − cosine of two of them"),
    ("gap", "mean over depths 1 and up of |log of a profile − log of the dense ID profile|"),
    ("gain", "mean distance of states behind a block over that before it"),
    ("surrogate", "the linear map that tells best what leaves a block from what enters it"),
    ("R²", "share of the variation of held-out states that the surrogate tells"),
    ("A − I", "the part of the surrogate that is the block's update"),
    ("effective rank", "exp of the entropy of the normalised singular values"),
    ("participation", "(Σ σ²)² / Σ σ⁴ of the singular values"),
    ("amplifier", "gain up and rank of the update on the data down, from ID to OOD"),
    ("inverse", "the surrogate inverted, with a ridge, behind a block that stays"),
    ("random map", "an orthogonal map of the inverse's Frobenius norm in its place"),
    ("rotated inverse", "a map that moves each state as far as the inverse, another way"),
)
"""Word -> meaning."""
