from __future__ import annotations

import pytest

from trials.measurement.collectives import communication_part

NAMES = {
    "c10d::allreduce_": "all_reduce_s",
    "gloo:all_reduce": "all_reduce_s",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "all_reduce_s",
    "c10d::barrier": "all_reduce_s",
    "c10d::_allgather_base_": "all_gather_s",
    "c10d::allgather_into_tensor_coalesced_": "all_gather_s",
    "_c10d_functional::all_gather_into_tensor": "all_gather_s",
    "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "all_gather_s",
    "c10d::broadcast_": "all_gather_s",
    "c10d::_reduce_scatter_base_": "reduce_scatter_s",
    "c10d::reduce_scatter_tensor_coalesced_": "reduce_scatter_s",
    "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "reduce_scatter_s",
    "c10d::alltoall_base_": "all_to_all_s",
    "nccl:all_to_all": "all_to_all_s",
    "c10d::send": "send_receive_s",
    "c10d::recv_": "send_receive_s",
    "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)": "send_receive_s",
    "aten::mm": None,
    "": None,
}


@pytest.mark.parametrize(("name", "part"), NAMES.items())
def test_a_collective_is_known_by_each_of_its_names(name: str, part: str | None) -> None:
    assert communication_part(name) == part
