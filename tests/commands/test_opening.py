"""What commands need memory for: weights are placed by it."""

import pytest

from laaciq.commands.opening import open_session
from laaciq.commands.settings import Settings
from laaciq.options import (
    EvaluateOptions,
    ImatrixOptions,
    InterveneOptions,
    MixtureOptions,
    PlanOptions,
    ProfileOptions,
    QuantizeOptions,
    RunOptions,
    SensitivityOptions,
    SweepOptions,
)
from laaciq.trials.memory import MEASURING, PROFILING, Demand


@pytest.mark.parametrize(
    ("options", "demand"),
    [
        (ProfileOptions(), PROFILING),
        (SweepOptions(), MEASURING),
        (SensitivityOptions(), MEASURING),
        (InterveneOptions(do="kurtosis"), MEASURING),
        (ImatrixOptions(), PROFILING),
        (EvaluateOptions(checkpoint="reference", against="reference"), MEASURING),
        (PlanOptions(), Demand(tuning=False)),
        (QuantizeOptions(), Demand()),
        (QuantizeOptions(method="rtn"), MEASURING),
        (RunOptions(method="gptq"), Demand(tuning=False)),
        (MixtureOptions(), Demand()),
    ],
)
def test_a_command_needs_memory_for_what_it_does(options, demand):
    assert open_session(options, Settings()).demand == demand
