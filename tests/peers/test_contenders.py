import pytest

from laaciq.backends.registry import BACKENDS
from laaciq.errors import BadOption
from laaciq.peers.contenders import find_contender, find_contenders


def test_back_ends_and_our_methods_go_by_name():
    names = [own.name for own in find_contenders(None)]
    assert names == [*BACKENDS, "planned", "gptq"]
    assert [own.name for own in find_contenders(["hqq", "rtn", "hqq"])] == ["hqq", "rtn"]
    assert find_contender("hqq").backend is BACKENDS["hqq"]
    assert [find_contender(name).reads_text for name in ("rtn", "gptq", "nf4", "llmcompressor-awq")] == [
        False,
        True,
    ] * 2


def test_a_planned_method_may_have_a_size():
    sized = find_contender("planned@4.125").options(4)
    assert (sized.method, sized.budget, sized.bits) == ("planned", 4.125, 4)
    assert find_contender("planned").options(3).budget is None
    for wrong, said in (("rtn@4", "only a planned"), ("planned@x", "has no size"), ("hqqq", "did you mean 'hqq'")):
        with pytest.raises(BadOption, match=said):
            find_contender(wrong)
