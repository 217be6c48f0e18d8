"""Where ``bench.gate_trials`` has its trials from: our decoder, which computes, or a paced trainer, which sleeps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from autotuner.catalog.hardware import load_cluster
from autotuner.core.choices import AttentionKernel, ExportFormat, Precision, Recompute
from autotuner.core.layout import Layout
from autotuner.core.measurement import Measurement
from autotuner.core.model import TransformerSpec
from autotuner.core.trial_spec import Trainer, TrialSettings, TrialSpec
from autotuner.core.workload import Workload
from autotuner.launch.exclusive import DevicePool
from autotuner.launch.local import LocalLauncher
from autotuner.launch.trainers.registration import Registration
from bench.patient import Patient

_MODEL = TransformerSpec(
    name="gate",
    num_layers=16,
    hidden_size=64,
    num_heads=2,
    num_kv_heads=2,
    head_dim=32,
    ffn_size=192,
    vocab_size=256,
)
"""So many layers that recomputing one of them costs about a twentieth: a third of its passes, and the same of what
Python needs to start them, which such small layers are as much made of."""

_WORKLOAD = Workload(seq_len=64, global_batch_size=2)

PLAIN = Layout(precision=Precision.FP32, attention_kernel=AttentionKernel.FLASH, micro_batch_size=2)
SLOWER = replace(PLAIN, recompute=Recompute.FULL, recompute_every=_MODEL.num_layers)

_SCRIPT = Path(__file__).with_name("paced_trainer.py")

_PACED = Registration(
    trainer=Trainer(name="paced", format=ExportFormat.ARGUMENTS),
    command=("{python}", "-S", str(_SCRIPT)),
    working_directory=_SCRIPT.parent,
    variables={"PYTHONPATH": str(_SCRIPT.parents[1])},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What runs, how long, and what is said of it."""

    registration: Registration | None
    """None: our decoder, forked."""
    settings: TrialSettings
    """Short and of a fixed length, so that hundreds of decisions take minutes."""
    slower: str
    """The slower layout, in words."""

    def launcher(self, folder: Path) -> LocalLauncher:
        """For one lane: others run beside it."""
        registered = {} if self.registration is None else {self.registration.trainer.name: self.registration}
        return LocalLauncher(folder, devices=DevicePool(), trainers=registered)

    def run(self, launcher: LocalLauncher, layout: Layout) -> Measurement:
        """One trial."""
        outcome = launcher.run(self._trial(layout), Patient())
        assert isinstance(outcome, Measurement), outcome
        return outcome

    def _trial(self, layout: Layout) -> TrialSpec:
        trial = TrialSpec(
            trial_id="gate",
            model=_MODEL,
            workload=_WORKLOAD,
            layout=layout,
            device="cpu",
            settings=self.settings,
            reference_flop_per_s=1e11,
        )
        if self.registration is None:
            return trial
        return replace(trial, trainer=self.registration.trainer, cluster=load_cluster("cpu:1"))


def _steps(num_warmup: int, num_measured: int) -> TrialSettings:
    return TrialSettings(
        warmup_steps=num_warmup,
        max_warmup_steps=num_warmup,
        measured_steps=num_measured,
        max_measured_steps=num_measured,
        profiled_steps=0,
        max_repeats=0,
    )


SOURCES = {
    "decoder": Source(registration=None, settings=_steps(2, 20), slower="the layout that recomputes a layer"),
    "paced": Source(registration=_PACED, settings=_steps(1, 8), slower="the layout whose steps sleep so much longer"),
}
