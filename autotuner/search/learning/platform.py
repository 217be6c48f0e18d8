"""Platform: what step times depend on beside model, workload and layout."""

from __future__ import annotations

from dataclasses import dataclass

from autotuner.core.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """Hardware and software that trials ran on.

    Attributes:
        accelerator: Name of the device.
        intra_node_link: Name of the link within a node.
        inter_node_link: Name of the link between nodes, also of a cluster of one node.
        stack: Name of the software that predictions are for.
        trainer: Name of the registered trainer; None: our own decoder.
    """

    accelerator: str
    intra_node_link: str
    inter_node_link: str
    stack: str
    trainer: str | None = None

    @classmethod
    def of(cls, job: Job, trainer: str | None = None) -> Platform:
        """The job's."""
        cluster = job.cluster
        return cls(
            accelerator=cluster.accelerator.name,
            intra_node_link=cluster.intra_node_link.name,
            inter_node_link=cluster.inter_node_link.name,
            stack=job.stack.name,
            trainer=trainer,
        )

    def differences(self, other: Platform) -> int:
        """How many of accelerator, links and software differ."""
        links = (self.intra_node_link, self.inter_node_link) != (other.intra_node_link, other.inter_node_link)
        software = (self.stack, self.trainer) != (other.stack, other.trainer)
        return (self.accelerator != other.accelerator) + links + software
