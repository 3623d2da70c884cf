"""Cases of the other sets in a second style of export, for checks beyond those kept in the repository."""
import dataclasses

from sets import activations, attention, convolution, functions, graphs
from styles import styled


def cases():
    for module in (activations, attention, convolution, functions, graphs):
        for case in module.cases():
            if case.as_file or case.external_data or "opset" in case.name:
                continue
            for shift in (5, 8):  # from an odd style to an even one: the other exporter, and another opset
                other = styled(case, shift)
                if (other.exporter, other.opset) != (case.exporter, case.opset):
                    yield dataclasses.replace(other, name=f"{case.name}__{other.exporter}{other.opset}")
