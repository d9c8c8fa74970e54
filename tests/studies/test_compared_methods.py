import pytest

from laaciq.backends.registry import BACKENDS
from laaciq.errors import BadOption
from laaciq.studies.compared_methods import find_compared_method, find_compared_methods


def test_back_ends_and_our_methods_go_by_name():
    names = [entry.name for entry in find_compared_methods(None)]
    assert names == [*BACKENDS, "planned", "gptq"]
    assert [entry.name for entry in find_compared_methods(["hqq", "rtn", "hqq"])] == ["hqq", "rtn"]
    assert find_compared_method("hqq").backend is BACKENDS["hqq"]
    assert [find_compared_method(name).reads_text for name in ("rtn", "gptq", "nf4", "llmcompressor-awq")] == [
        False,
        True,
    ] * 2


def test_a_planned_method_may_have_a_size():
    sized = find_compared_method("planned@4.125").options(4)
    assert (sized.method, sized.budget, sized.bits) == ("planned", 4.125, 4)
    assert find_compared_method("planned").options(3).budget is None
    for wrong, expected in (("rtn@4", "only a planned"), ("planned@x", "has no size"), ("hqqq", "did you mean 'hqq'")):
        with pytest.raises(BadOption, match=expected):
            find_compared_method(wrong)
