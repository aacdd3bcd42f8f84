"""Planted faults fit the code: what each replaces stands there once, and its test exists.
`make test-faults` shows that the tests find them.
"""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SPEC = importlib.util.spec_from_file_location(
    "plant", ROOT / "tests" / "planted_faults" / "plant.py"
)
assert SPEC is not None
assert SPEC.loader is not None
plant = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(plant)
FAULTS = plant.read_faults()


@pytest.mark.parametrize("fault", FAULTS, ids=[f"{k} {f.file}" for k, f in enumerate(FAULTS)])
def test_each_fault_can_be_planted_and_has_a_test(fault: "plant.Fault") -> None:
    text = (ROOT / fault.file).read_text()
    assert len(plant.written_anyhow(fault.was).findall(text)) == 1
    assert fault.becomes != fault.was
    path, *names = fault.test.split()[0].split("::")
    tests = (ROOT / path).read_text()
    for name in names:
        assert re.search(rf"(def|class) {re.escape(name.partition('[')[0])}\b", tests), fault.test
