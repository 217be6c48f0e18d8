from __future__ import annotations

from autotuner.core.layout import Layout
from autotuner.core.model import TransformerSpec
from tests.builders import cpu_layout, tiny_model
from tests.trials.agreement import Trainer, for_each
from tests.trials.specs import ODD_VOCABULARY, PIPELINE, SEQUENCE, TENSOR, fsdp

GATHERED = ((tiny_model(), cpu_layout(**TENSOR, micro_batch_size=4, loss_parallel=False)),)
MORE = (
    (ODD_VOCABULARY, cpu_layout(**SEQUENCE, **PIPELINE, micro_batch_size=2, loss_parallel=False)),
    (tiny_model(), fsdp(2, **SEQUENCE, micro_batch_size=4, loss_parallel=False)),
)


@for_each(GATHERED, oracle=MORE)
def test_gathered_logits_give_the_loss_and_the_gradients_of_a_single_process(
    model: TransformerSpec, layout: Layout, trainer: Trainer
) -> None:
    trainer.assert_alike(layout, model)
