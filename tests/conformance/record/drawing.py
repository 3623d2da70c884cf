"""Shared code of the sets whose cases are selected by name."""
from case import pixels, term
from sets import random_nets


def target(r, out, axis):
    """The loss terms for an output with shape `out` per sample, and a function that creates the target. Axis 0 means that there are no
    classes."""
    terms, y = random_nets.loss(r, out, axis)
    if axis == 0 and terms[0]["type"] in ("cross_entropy", "nll"):
        return [term(r.choice(["mse", "l1", "huber", "smooth_l1"]))], lambda b: pixels(b, *out)
    return terms, y


def two_styles(case, names):
    """Calls case(name, again) for each name: in the first style, and in a second one if that is different."""
    for name in names:
        first, second = case(name, 0), case(name, 1)
        yield first
        if second.name != first.name:
            yield second
