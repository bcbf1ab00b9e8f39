"""A canary: what ike relies on inside DeepSpeed. A release that moves any of it fails here first, and by name."""

import inspect

import pytest

deepspeed = pytest.importorskip("deepspeed")

from deepspeed.runtime.bf16_optimizer import BF16_Optimizer  # noqa: E402
from deepspeed.runtime.zero import parameter_offload  # noqa: E402
from deepspeed.runtime.zero.partition_parameters import Init  # noqa: E402
from deepspeed.runtime.zero.stage3 import DeepSpeedZeroOptimizer_Stage3  # noqa: E402
from deepspeed.runtime.zero.stage_1_and_2 import DeepSpeedZeroOptimizer  # noqa: E402
from deepspeed.utils.tensor_fragment import fragment_address, tensor_fragment  # noqa: E402


@pytest.mark.parametrize(
    ("cls", "method"),
    [
        (DeepSpeedZeroOptimizer, "update_lp_params"),
        (BF16_Optimizer, "update_lp_params"),
        (DeepSpeedZeroOptimizer_Stage3, "_reassign_or_swap_out_partitioned_parameters"),
        (DeepSpeedZeroOptimizer_Stage3, "get_param_id"),
    ],
)
def test_methods_that_refresh_the_model_are_there(cls, method) -> None:
    assert callable(getattr(cls, method))


@pytest.mark.parametrize(
    "name", ["grad_position", "fp32_partitioned_groups_flat", "sub_group_to_group_id", "persistent_parameters"]
)
def test_stage_3_says_where_its_masters_lie(name) -> None:
    assert f"self.{name} = " in inspect.getsource(DeepSpeedZeroOptimizer_Stage3)


def test_stages_1_and_2_say_which_part_of_a_parameter_is_whose() -> None:
    assert {"lp_fragment_address", "hp_fragment_address", "param_group_index"} <= set(
        tensor_fragment.__dataclass_fields__
    )
    assert {"start", "numel"} <= set(fragment_address.__dataclass_fields__)


def test_a_dealt_parameter_knows_its_shape_and_its_cut() -> None:
    source = inspect.getsource(Init)
    assert all(f"param.{name} = " in source for name in ("ds_shape", "ds_numel", "ds_tensor", "partition_numel"))


def test_what_is_let_go_after_a_run_is_there() -> None:
    assert isinstance(parameter_offload.FWD_MODULE_STACK, list)
