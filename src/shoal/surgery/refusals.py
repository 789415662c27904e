"""What cannot be pruned, and why: found from the config alone, before any work."""

from huggingface_hub.errors import StrictDataclassError
from transformers import PreTrainedConfig

from shoal.core.errors import UnsupportedModelError, UsageError
from shoal.core.layout import Layout
from shoal.models.discover import depth_of
from shoal.surgery.fields import donors, origins, views
from shoal.surgery.limits import limits


def why_not(config: PreTrainedConfig) -> list[str]:
    """What limits the pruning of a model, one sentence each; empty where any block can go.

    Args:
        config: The model's config; a nested text config is found.
    """
    return [limit.note for limit in limits(config)]


def check_request(config: PreTrainedConfig, layout: Layout) -> None:
    """Refuse what can be refused by looking at the dense config and the layout.

    Raises:
        UsageError: If the mask is for another depth, or removes everything.
        UnsupportedModelError: If the model type does not allow it.
    """
    depth, mask = depth_of(config), layout.mask
    if mask.depth != depth:
        raise UsageError(
            f"the mask {mask} is for {mask.depth} blocks, but the model has {depth}. "
            "Use a mask or a plan that was made for this model."
        )
    if not mask.kept:
        raise UsageError(f"the mask {mask} removes all {depth} blocks. Keep at least one.")
    if reason := _reason(config, layout):
        raise UnsupportedModelError(f"{config.model_type} cannot be pruned by {mask}: {reason}.")


def check_expressed(dense: PreTrainedConfig, pruned: PreTrainedConfig, layout: Layout) -> None:
    """Refuse a pruned config that, once saved and read, says something else than the dense one.

    Config classes recompute and rewrite fields when they are read, so the copy goes through JSON
    form once and then every view of every kept block must be what it was.

    Raises:
        UnsupportedModelError: If anything differs, with the field and the reason.
    """
    mask, kind = layout.mask, dense.model_type
    try:
        read_back = type(pruned)(**pruned.to_diff_dict())
        after, after_donors = views(read_back), donors(read_back)
        depth = depth_of(read_back)
    except (ValueError, KeyError, TypeError, IndexError, StrictDataclassError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[-1]
        raise UnsupportedModelError(
            f"{kind} cannot be pruned by {mask}: its config class refuses the result: {reason}"
        ) from error
    if depth != len(layout):
        raise UnsupportedModelError(
            f"{kind} cannot be pruned by {mask}: its config then asks for {depth} blocks, "
            f"not {len(layout)}."
        )
    before = views(dense)
    for name, values in before.items():
        for new, old in enumerate(origins(layout, name)):
            if name in after and after[name][new] != values[old]:
                raise UnsupportedModelError(
                    f"{kind} cannot be pruned by {mask}: block {old} has {name} = "
                    f'"{values[old]}", but at its new place {new} the config can only say '
                    f'"{after[name][new]}". Choose other blocks.'
                )
    wanted = donors(dense)
    found = [None if d is None else layout.attn[d] for d in after_donors]
    if found != [wanted[i] for i in layout.attn]:
        raise UnsupportedModelError(
            f"{kind} cannot be pruned by {mask}: kept blocks would reuse other keys and values "
            "than they do. Choose other blocks."
        )


def _reason(config: PreTrainedConfig, layout: Layout) -> str | None:
    if not layout.mask.removed:
        return None
    return next(filter(None, (limit.broken(layout) for limit in limits(config))), None)
