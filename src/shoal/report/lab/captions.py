"""What each figure of a lab run is, and what to look for."""

CAPTIONS = {
    "lengths": (
        "Error by the number of points seen",
        "A row for each model: its own task, and two shifted ones. A model that has learned falls "
        "with every point it sees, far below predicting zero and towards least squares. Under "
        "shift, see whether the dense model still falls, where BEST lies against it, and against "
        "a perfect learner that only cannot exceed the largest value of training (dotted green). "
        "Least squares and ridge are nearly exact; where they are below the axis they stand at "
        "its edge. Bands are 95% intervals over functions.",
    ),
    "gain": (
        "Gain of BEST by the width of the functions",
        "Each point is a mask of its own, chosen for that σ and judged on other functions of that "
        "σ. At the dashed line the functions are those of training. Hollow: BEST removes nothing. "
        "Vertical lines are 95% intervals over functions, the band a 95% t-interval over models "
        "of the same training range, wide where they are few.",
    ),
    "controls": (
        "Gain of BEST beside the gain of simpler things",
        "A gain is worth something where BEST lies above all of the controls: one removed block, "
        "the best of as many random masks as TALE looked at, random masks of the same size (bars, "
        "from least to largest), and the dense model with its output times one fitted factor.",
    ),
    "transfer": (
        "Masks on other tasks",
        "Rows: the σ that BEST was chosen on. Columns: the σ it is judged on. Numbers are losses "
        "over the dense loss, geometric means over models. On the frame a mask is judged on "
        "the task it was chosen for. Read the column of training for what a mask costs in "
        "distribution, and the row of training for what one chosen in distribution does "
        "under shift.",
    ),
    "removed": (
        "Blocks that are removed",
        "Numbers tell the order of removal. See whether neighbouring σ, and models that were "
        "trained alike from other seeds, choose the same blocks.",
    ),
    "saturation": (
        "Sizes of predictions",
        "A model whose curve stays at the shaded area, while the dashed line rises, predicts "
        "nothing larger than what training showed it: it saturates. Then any change that makes "
        "predictions larger or smaller may help, whatever it does inside.",
    ),
    "gaps": (
        "Gaps to the profile of training, before and after",
        "From hollow (dense) to filled (pruned); to the left is closer to training. The bar "
        "is the 95% interval of the change, laid around the filled dot. A row is closer, or "
        "further, where that interval has no zero in it. All kinds should agree if geometry is "
        "what pruning restores.",
    ),
    "relation": (
        "Single removals: gap against loss",
        "A dot for each block of each model, removed by itself. If a restored geometry is why "
        "removal helps, the dots rise from the shaded corner, where the gap and the loss are both "
        "below the dense model's, and their rank correlation (mean over models) is clearly above "
        "0. A correlation is no cause. Ratios beyond 10 stand at the edge.",
    ),
    "signatures": (
        "Gain and rank of blocks, shifted against training",
        "A dot for each block, model and task. The paper's amplifiers lie in the shaded corner: "
        "distances grow more in the block on shifted inputs than on those of training, and what "
        "the block adds has a lower rank. The removed blocks should lie there, and the others "
        "should not. Crosses are blocks that no linear map describes well enough; they count for "
        "nothing.",
    ),
    "alphas": (
        "Scaling what blocks add",
        "α = 1 is the dense model, α = 0 removes the blocks. Thick: mean over models and sets of "
        "blocks; thin: each of them. If the removed blocks cause the loss, their curve rises all "
        "the way from 0 to 1, and further beyond; a least loss between 0 and 1 would say that "
        "they only add too much. Loss ratios above 10 stand at the upper edge.",
    ),
    "inverses": (
        "Undoing blocks by a linear map",
        "The blocks stay in place, and a linear map behind each undoes what it does. At 100% that "
        "is as good as removing them, at 0% as the dense model. The filled mark is the best try "
        "of its kind, for controls too. With R² near 1 the map is the block, and recovery follows "
        "by construction.",
    ),
}
"""Figure -> its title, and what to look for."""
