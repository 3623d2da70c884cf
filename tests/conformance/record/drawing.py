"""What sets whose cases are drawn by name have in common."""
from case import pixels, term
from sets import random_nets


def target(r, out, axis):
    """The terms for an output of `out` for a sample, and what makes their target; axis 0: there are no classes."""
    terms, y = random_nets.loss(r, out, axis)
    if axis == 0 and terms[0]["type"] in ("cross_entropy", "nll"):
        return [term(r.choice(["mse", "l1", "huber", "smooth_l1"]))], lambda b: pixels(b, *out)
    return terms, y


def two_styles(case, names):
    """case(name, again) of each name: the first style, and another one where that is not the same."""
    for name in names:
        first, second = case(name, 0), case(name, 1)
        yield first
        if second.name != first.name:
            yield second
