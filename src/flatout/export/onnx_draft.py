"""`Draft`: an ONNX graph while it is written down, operation by operation.

It names intermediate values and stores each constant once. What the operations mean together is not
known here.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper, numpy_helper

Value = str | NDArray[Any] | np.generic  # the name of a value in the graph, or a constant


class Draft:
    """Nodes and constants so far."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: dict[tuple[str, tuple[int, ...], bytes], TensorProto] = {}

    def op(self, kind: str, *inputs: Value, name: str | None = None, **attributes: Any) -> str:
        """Add an operation with one output; returns the output's name."""
        output = name or f"{kind}_{len(self.nodes)}"
        named = [
            given if isinstance(given, str) else self.constant(np.asarray(given))
            for given in inputs
        ]
        self.nodes.append(helper.make_node(kind, named, [output], **attributes))
        return output

    def constant(self, array: NDArray[Any]) -> str:
        """The name of a constant; equal constants share one."""
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self.constants:
            name = f"constant_{len(self.constants)}"
            self.constants[key] = numpy_helper.from_array(
                np.ascontiguousarray(array).reshape(array.shape), name
            )
        return self.constants[key].name
