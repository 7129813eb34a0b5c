"""Rules about how a training is put together: model against optimizer, modes, and what outputs depend on.

They are facts rather than measures: the optimizer says what it holds, and a few examples what they tell each other.
"""

from __future__ import annotations

from ..rule import CHOICE
from ..setup import Setup
from ..wording import percent
from .facts import fact, named

MOVED = 1e-4  # an output that moves by less than this share of the outputs' size does so by rounding


def _unseen(setup: Setup) -> bool:
    return bool(setup.hidden) or (setup.unregistered > 0 and setup.optimized is not None and setup.stale == 0)


OPTIMIZER = (
    fact(
        "layers are not registered", _unseen, "modules in lists, or tensors that are no parameters",
        lambda s, v: f"{named(s.hidden)} {'is' if len(s.hidden) == 1 else 'are'} in a list or dict, where "
        "model.parameters() does not see them." if s.hidden else
        f"{s.unregistered} tensors with a gradient are not among model.parameters().",
        "keep layers in torch.nn.ModuleList or ModuleDict, tensors as torch.nn.Parameter, and make the optimizer after "
        "that", "optimizer", hides=("parameters are not optimized", "gradient is cut off"),
    ),
    fact(
        "optimizer holds other parameters", lambda s: s.optimized is not None and s.stale > 0,
        "the optimizer's parameters that are not the model's",
        lambda s, v: f"{s.stale} of the optimizer's parameters do not belong to the model"
        + (", and none of the model's are in it." if s.optimized == 0 else "."),
        "make the optimizer from model.parameters(), after the model is complete and on its device", "optimizer",
        hides=("parameters are not optimized",), always=True,
    ),
    fact(
        "parameters are not optimized", lambda s: len(s.unoptimized) > 0, "parameters with a gradient and no optimizer",
        lambda s, v: f"{len(s.unoptimized)} of {s.parameters} parameters get a gradient and are not in the optimizer: "
        f"{named(s.unoptimized)}.",
        "give the optimizer model.parameters(); or freeze them with requires_grad_(False) if that is meant",
        "optimizer",
    ),
    fact(
        "everything is frozen", lambda s: s.parameters > 0 and len(s.frozen) == s.parameters,
        "parameters that require no gradient", lambda s, v: "No parameter requires a gradient, so nothing is learned.",
        "call model.requires_grad_(True)", "optimizer",
    ),
    fact(
        "gradient is cut off", lambda s: len(s.unreached) > 0 and len(s.frozen) < s.parameters,
        "parameters of layers that ran and get no gradient",
        lambda s, v: f"{len(s.unreached)} parameters of layers that ran get no gradient: {named(s.unreached)}.",
        "look for .detach(), .data, .item(), .numpy(), torch.tensor(…) or torch.no_grad() behind them, and whether "
        "what they return is used: x = layer(x)", "optimizer",
        hides=("an activation is thrown away",),
    ),
    fact(
        "an activation is thrown away", lambda s: bool(s.discarded), "1 if nothing reads what an activation returns",
        lambda s, v: f"Nothing reads what {s.discarded} returns: the layers behind it get what entered it.",
        "use its result: x = activation(x)", "architecture", hides=("activations are idle",),
    ),
    fact(
        "a tensor is added to itself", lambda s: s.doubled, "1 if the two terms of a sum are one tensor",
        lambda s, v: "The two terms of a sum are one tensor, so that a skip connection skips nothing.",
        "add the block's input to its output: x + block(x)", "architecture",
        hides=("gradient vanishes", "signal drowns", "signal dies"),
    ),
    fact(
        "a view moves an axis", lambda s: s.moved is not None, "1 if a view has an axis of before at another place",
        lambda s, v: f"A view makes {s.moved[1] if s.moved else ()} of {s.moved[0] if s.moved else ()}: an axis is at "
        "another place, and holds numbers of several.",
        "use transpose or permute, and a view only to split or join neighbouring axes", "mixing",
        hides=("examples mix", "outputs miss their targets", "steps are not seen"), always=True,
    ),
    fact(
        "recurrent layers are many", lambda s: s.stacked, "layers of a recurrent one",
        lambda s, v: f"{v:.0f} recurrent layers follow each other, each of which squashes its signal.",
        "use two or three, wider ones", "architecture", threshold=4, source=CHOICE,
    ),
    fact(
        "one layer stands several times", lambda s: s.repeated[1] > 1, "places of one module in a container",
        lambda s, v: f"{s.repeated[0]} holds one layer {s.repeated[1]} times, with one set of weights.",
        "make each layer anew: [make() for _ in range(n)], not [layer] * n", "architecture", always=True,
    ),
)  # fmt: skip


# Modes, and mixing.


def _unread_padding(setup: Setup) -> bool:
    return setup.padding is not None and setup.padding[0] > 0 == setup.padding[1]


def _read_padding(setup: Setup) -> float | None:
    if setup.padding is None or setup.padding[1] == 0:
        return None
    return setup.padded * min(1.0, setup.padding[0] / setup.padding[1])


MODES = (
    fact(
        "model is in evaluation mode", lambda s: s.optimized is not None and len(s.evaluating) > 0,
        "dropout and batch normalization in evaluation mode",
        lambda s, v: f"{named(s.evaluating)} {'is' if len(s.evaluating) == 1 else 'are'} in evaluation mode.",
        "call model.train() before training", "mode", always=True,
    ),
    fact(
        "dropout stays on", lambda s: s.drops, "dropout that drops in evaluation mode",
        lambda s, v: "Dropout drops in evaluation mode too.",
        "give it training=self.training, or use the module torch.nn.Dropout", "mode", always=True,
    ),
    fact(
        "one number is normalized", lambda s: s.single > 0, "normalizations over one number",
        lambda s, v: "A normalization takes the mean of one number from it, which leaves 0.",
        "normalize over several features, or leave it out", "architecture", hides=("signal dies", "gradient vanishes"),
    ),
    fact(
        "momentum is too large", lambda s: s.momentum, "momentum of the optimizer",
        lambda s, v: f"The optimizer's momentum is {v:.4g}: a gradient counts for {1 / max(1e-9, 1 - v):,.0f} steps.",
        "lower it to 0.9", "optimizer", threshold=0.995, source=CHOICE, always=True,
    ),
    fact(
        "rate is zero", lambda s: len(s.stalled) > 0, "parameters with a learning rate of 0",
        lambda s, v: f"The learning rate is 0 for {named(s.stalled)}.",
        "look at the schedule: its first value multiplies the rate, and the next comes with the next scheduler.step(); "
        "freeze what is not to learn with requires_grad_(False)",
        "optimizer", hides=("batch is not learned",),
    ),
    fact(
        "epsilon underflows", lambda s: s.tiny, "1 if the optimizer's epsilon is 0 in the parameters' precision",
        lambda s, v: "The optimizer's epsilon is 0 in the precision of the parameters: it divides by what may be 0.",
        "give it eps=1e-4; or keep the parameters in float32 and use torch.autocast", "optimizer",
        always=True,
    ),
    fact(
        "steps are rounded away", lambda s: s.rounded, "share of the weights that rounding keeps from moving",
        lambda s, v: f"The next step is lost to rounding in {percent(v)} of the weights.",
        "keep the parameters in float32 and use torch.autocast for the rest", "optimizer", threshold=0.3,
        source=CHOICE, always=True,
    ),
    fact(
        "batch of one", lambda s: s.examples == 1 and len(s.normalized) > 0, "examples of a batch-normalized batch",
        lambda s, v: "Batch normalization sees one example, whose mean it takes off.",
        "use larger batches, or torch.nn.GroupNorm or LayerNorm", "mode", hides=("outputs miss their targets",),
        always=True,
    ),
    fact(
        "statistics are not kept", lambda s: bool(s.statistics), "momentum 0 or above 0.5, or none are kept",
        lambda s, v: f"The running statistics of a batch normalization {s.statistics}: evaluation is not as training.",
        "use momentum=0.1, the share of the newest batch in torch, and no track_running_stats=False", "mode",
        source=CHOICE, always=True,
    ),
    fact(
        "model remembers", lambda s: s.remembers, "outputs that differ for the same inputs",
        lambda s, v: "The same inputs give other outputs the second time: the model keeps a state between calls.",
        "start each sequence from a state of zeros, or detach and mask the one that is kept", "mixing", always=True,
    ),
    fact(
        "activations follow each other", lambda s: len(s.pairs) > 0, "bounded activations one after the other",
        lambda s, v: f"{s.pairs[0][1].lower()} is applied to a {s.pairs[0][0].lower()}, which squashes twice.",
        "leave one of them out", "architecture",
    ),
    fact(
        "order is not seen", lambda s: s.unordered, "1 if tokens in another order give the same outputs",
        lambda s, v: "Tokens in another order give the same outputs: attention alone does not see where they stand.",
        "add positions to the embeddings, one vector for each step", "architecture", unless_mastered=True,
    ),
    fact(
        "mask is inverted", _unread_padding, "1 if outputs depend on padding, and not on the rest",
        lambda s, v: "The outputs depend on padding, and not on what is no padding.", "invert the mask: ~mask",
        "mixing",
        hides=("steps are not seen", "order is not seen", "padding is read"), always=True,
    ),
    fact(
        "padding is read", _read_padding, "share of padding, times its weight / that of the rest",
        lambda s, v: f"{percent(s.padded)} of the inputs is padding, and outputs depend on it as on the rest.",
        "mask it: leave it out of means and sums, give attention key_padding_mask, and recurrent layers packed "
        "sequences", "mixing", threshold=0.3, source=CHOICE, unless_mastered=True,
    ),
    fact(
        "steps are not seen", lambda s: s.unseen, "share of steps that no output depends on",
        lambda s, v: f"No output depends on {percent(v)} of the inputs' steps.",
        "look whether the state goes from step to step, each layer reads the one before, and masks are the right way "
        "round", "architecture", threshold=0.25, source=CHOICE,
    ),
    fact(
        "backward direction is not read", lambda s: s.one_sided, "1 if of both directions only the last step is read",
        lambda s, v: "Of a recurrent layer that reads both ways only the last step is used, where the backward "
        "direction has seen one step.",
        "join the last states of both directions: torch.cat([state[-2], state[-1]], 1), or take a mean over the steps",
        "architecture", always=True,
    ),
    fact(
        "examples mix", lambda s: s.mixes, "how far outputs move with other examples, or another order",
        lambda s, v: "The outputs of an example change with another example, or with its place in the batch, by "
        f"{percent(v)} of their size.",
        "look for view or reshape where transpose is meant, a softmax or mean over dim 0, batch_first, a kept state, "
        "or positions and masks that are indexed along the batch",
        "mixing", threshold=MOVED, hides=("steps are not seen", "order is not seen"),
        always=True,
    ),
    fact(
        "later inputs leak", lambda s: s.leaks, "how far earlier outputs move with a later input",
        lambda s, v: f"Outputs change with later inputs, by {percent(v)} of their size, and are to predict these.",
        "mask the attention: is_causal=True, or pad convolutions on the left alone", "mixing", threshold=MOVED,
        always=True,
    ),
)  # fmt: skip
RULES = (*OPTIMIZER, *MODES)
