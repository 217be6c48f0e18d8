"""The best layouts by prediction alone."""

from __future__ import annotations

from autotuner.costmodel.predict import CHUNK, predict, predict_one
from autotuner.domain.layouts.choice import PipelineSchedule
from autotuner.domain.layouts.search_space import SearchSpace
from autotuner.domain.rules.legality import RULES, TRIAL_RULES
from autotuner.search.ranking import best_predicted
from autotuner.search.space import legal_layouts
from tests.builders import big_job, llama_70b, tiny_job, tiny_space

BUCKETS = tuple(2**power for power in range(20, 30))


def test_rows_fit_and_fall_in_predicted_mfu() -> None:
    table = best_predicted(big_job(), limit=20)
    assert len(table.rows) == 20
    assert all(row.prediction.fits for row in table.rows)
    mfus = [row.prediction.mfu for row in table.rows]
    assert mfus == sorted(mfus, reverse=True)


def test_a_row_carries_its_own_prediction() -> None:
    first, *_ = best_predicted(big_job(), limit=1).rows
    assert first.prediction == predict_one(first.layout, big_job())


def test_the_first_row_is_the_best_of_the_whole_space() -> None:
    job = big_job()
    predictions = predict(legal_layouts(job), job)
    (first,) = best_predicted(job, limit=1).rows
    assert first.prediction.mfu == predictions.mfu[predictions.fits].max()


def test_counts_say_how_many_are_legal_and_how_many_fit() -> None:
    job = big_job()
    predictions = predict(legal_layouts(job), job)
    table = best_predicted(job)
    assert (table.num_legal, table.num_fitting) == (len(predictions), int(predictions.fits.sum()))
    assert 0 < table.num_fitting < table.num_legal


def test_the_same_question_gets_the_same_answer() -> None:
    assert best_predicted(tiny_job(2), tiny_space()) == best_predicted(tiny_job(2), tiny_space())


def test_what_does_not_fit_is_counted_and_not_shown() -> None:
    job = tiny_job(2, model=llama_70b())
    table = best_predicted(job, tiny_space())
    assert table.num_legal > 0
    assert (table.num_fitting, table.rows) == (0, ())


def test_an_empty_space_is_an_empty_table() -> None:
    table = best_predicted(tiny_job(2), SearchSpace(tensor_parallel_degree=(3,)))
    assert (table.num_legal, table.num_fitting, table.rows) == (0, 0, ())


def test_a_sweeps_rules_leave_what_a_trial_can_run() -> None:
    space = SearchSpace(pipeline_schedule=(PipelineSchedule.ZERO_BUBBLE,), compiled=(False, True))
    tried = best_predicted(big_job(), space, rules=(*RULES, *TRIAL_RULES))
    assert 0 < tried.num_legal < best_predicted(big_job(), space).num_legal


def test_the_best_of_several_chunks_are_those_of_the_whole_table() -> None:
    """Also where several have the same MFU: then the smaller peak counts, then the space's order."""
    job, space = big_job(), SearchSpace(pipeline_schedule=tuple(PipelineSchedule), gradient_bucket_bytes=BUCKETS)
    layouts = legal_layouts(job, space)
    assert len(layouts) > CHUNK
    whole = predict(layouts, job)
    rows = [row for row in range(len(layouts)) if whole.fits[row]]
    rows.sort(key=lambda row: (-whole.mfu[row], whole.memory.total_bytes[row], row))
    table = best_predicted(job, space, limit=25)
    assert (table.num_legal, table.num_fitting) == (len(layouts), len(rows))
    assert [row.layout for row in table.rows] == [layouts.row(row) for row in rows[:25]]
