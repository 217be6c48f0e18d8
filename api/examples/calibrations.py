"""Example of what stored trials taught."""

from __future__ import annotations

from api.schemas import CalibrationList, CalibrationView, LearntFactor


def calibration_list() -> CalibrationList:
    """A cluster whose network is slower than others of its kind."""
    return CalibrationList(
        items=(
            CalibrationView(
                accelerator="h100-sxm",
                intra_node_link="nvlink4",
                inter_node_link="ndr400",
                stack="megatron",
                trainer="pretrain",
                num_trials=58,
                num_sweeps=4,
                last_finished_at=1_760_000_000.0,
                whole_step=LearntFactor(factor=1.06, relative_error=0.04, differs=True),
                parts={
                    "matrix_s": LearntFactor(factor=0.99, relative_error=0.03, differs=False),
                    "data_communication_s": LearntFactor(factor=1.31, relative_error=0.12, differs=True),
                },
                median_error=0.083,
                left_out_error=0.031,
            ),
        )
    )
