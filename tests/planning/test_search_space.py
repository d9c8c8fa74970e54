import numpy as np

import laaciq
from laaciq.models import find_model, load
from laaciq.options import MeasureOptions
from laaciq.planning.curvature import measure_curvature
from laaciq.planning.search_space import _portions, _predicted_losses, _tried_outputs
from laaciq.planning.tensor_groups import base_plans, make_tensor_groups
from tests.tiny import save_tiny


def test_tensors_that_are_rounded_together_lose_what_each_alone_does(tmp_path):
    model = load(find_model(save_tiny("llama", tmp_path)), device="cpu")
    tensors = base_plans(model.anatomy, symmetric=False, token_matrices=True)
    groups = make_tensor_groups(tensors, "full", "laaciq")
    texts = laaciq.read_split("builtin").calibration.select(["eng", "hin"]).spread(2)
    curvature = measure_curvature(model, {tensor.name for tensor in tensors}, texts, MeasureOptions())
    gains = {tensor.name: 0.5 for tensor in tensors[:3]}
    tried = {layer.name: _tried_outputs(model, layer) for layer in model.anatomy.all_matrices}
    plans = [plan for group in groups for choice in group.choices for plan in choice]
    together = list(_predicted_losses(plans, tried, curvature, gains))
    alone = [losses for plan in plans for losses in _predicted_losses([plan], tried, curvature, gains)]
    np.testing.assert_allclose(together, alone, rtol=1e-5)


def test_portions_are_all_groups_in_order(tmp_path):
    model = load(find_model(save_tiny("llama", tmp_path)), device="cpu")
    groups = make_tensor_groups(base_plans(model.anatomy, symmetric=False, token_matrices=False), "fast", "laaciq")
    whole = sum(64 * plan.shape[1] for group in groups for plan in group.choices[0])
    for numbers, portions in ((1, len(groups)), (whole // 2, 2), (10 * whole, 1)):
        parts = list(_portions(groups, numbers))
        assert abs(len(parts) - portions) <= (portions == 2)
        assert [group for part in parts for group in part] == groups
