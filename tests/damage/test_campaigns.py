"""Every mutation campaign at its full count; the tables of docs/security.md are what these
print.
"""

import pytest

from damage.harness import as_table, campaign_count, campaign_names, run_campaign


@pytest.mark.slow
@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize("name", campaign_names())
def test_damaged_inputs_are_read_or_refused_with_a_sentence(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    result = run_campaign(name)
    with capsys.disabled():
        print(f"\n{as_table([result])}")
    assert not result.bad, result.story()
    assert result.cases == campaign_count(name)
    assert result.words["refused"] > result.cases / 10, (
        "damage that hardly ever matters shows nothing"
    )
