-- A database as revision 0002 left it, in SQL that SQLite and PostgreSQL both read. Never edit: old databases do not change.

CREATE TABLE autotuner_alembic_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT autotuner_alembic_version_pkc PRIMARY KEY (version_num)
);
CREATE TABLE sweeps (
    id VARCHAR NOT NULL,
    idempotency_key VARCHAR,
    request TEXT NOT NULL,
    state VARCHAR(32) NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    started_at DOUBLE PRECISION,
    finished_at DOUBLE PRECISION,
    cancel_requested BOOLEAN NOT NULL,
    owner VARCHAR,
    lease_until DOUBLE PRECISION,
    stop_reason VARCHAR(32),
    stop_detail VARCHAR NOT NULL,
    CONSTRAINT pk_sweeps PRIMARY KEY (id),
    CONSTRAINT uq_sweeps_idempotency_key UNIQUE (idempotency_key)
);
CREATE TABLE trials (
    id VARCHAR NOT NULL,
    sweep_id VARCHAR NOT NULL,
    number INTEGER NOT NULL,
    state VARCHAR(32) NOT NULL,
    layout TEXT NOT NULL,
    tensor_parallel_degree INTEGER NOT NULL,
    pipeline_parallel_degree INTEGER NOT NULL,
    micro_batch_size INTEGER NOT NULL,
    prediction TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    started_at DOUBLE PRECISION,
    finished_at DOUBLE PRECISION,
    CONSTRAINT pk_trials PRIMARY KEY (id),
    CONSTRAINT fk_trials_sweep_id_sweeps FOREIGN KEY(sweep_id) REFERENCES sweeps (id),
    CONSTRAINT uq_trials_sweep_id_number UNIQUE (sweep_id, number)
);
CREATE TABLE measurements (
    trial_id VARCHAR NOT NULL,
    sweep_id VARCHAR NOT NULL,
    mfu DOUBLE PRECISION NOT NULL,
    step_time_s DOUBLE PRECISION NOT NULL,
    tokens_per_s DOUBLE PRECISION NOT NULL,
    document TEXT NOT NULL,
    CONSTRAINT pk_measurements PRIMARY KEY (trial_id),
    CONSTRAINT fk_measurements_trial_id_trials FOREIGN KEY(trial_id) REFERENCES trials (id),
    CONSTRAINT fk_measurements_sweep_id_sweeps FOREIGN KEY(sweep_id) REFERENCES sweeps (id)
);
CREATE TABLE failures (
    trial_id VARCHAR NOT NULL,
    kind VARCHAR(32) NOT NULL,
    document TEXT NOT NULL,
    CONSTRAINT pk_failures PRIMARY KEY (trial_id),
    CONSTRAINT fk_failures_trial_id_trials FOREIGN KEY(trial_id) REFERENCES trials (id)
);
CREATE TABLE steps (
    trial_id VARCHAR NOT NULL,
    step INTEGER NOT NULL,
    document TEXT NOT NULL,
    CONSTRAINT pk_steps PRIMARY KEY (trial_id, step),
    CONSTRAINT fk_steps_trial_id_trials FOREIGN KEY(trial_id) REFERENCES trials (id)
);
CREATE TABLE events (
    sweep_id VARCHAR NOT NULL,
    sequence INTEGER NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    kind VARCHAR NOT NULL,
    data JSON NOT NULL,
    CONSTRAINT pk_events PRIMARY KEY (sweep_id, sequence),
    CONSTRAINT fk_events_sweep_id_sweeps FOREIGN KEY(sweep_id) REFERENCES sweeps (id)
);
CREATE TABLE models (
    name VARCHAR NOT NULL,
    document TEXT NOT NULL,
    CONSTRAINT pk_models PRIMARY KEY (name)
);
CREATE TABLE clusters (
    name VARCHAR NOT NULL,
    document TEXT NOT NULL,
    CONSTRAINT pk_clusters PRIMARY KEY (name)
);
CREATE TABLE profiles (
    name VARCHAR NOT NULL,
    document TEXT NOT NULL,
    CONSTRAINT pk_profiles PRIMARY KEY (name)
);
CREATE INDEX ix_measurements_ranking ON measurements (mfu DESC, trial_id);
CREATE INDEX ix_measurements_sweep_ranking ON measurements (sweep_id, mfu DESC, trial_id);
CREATE INDEX ix_sweeps_created_at_id ON sweeps (created_at, id);
CREATE INDEX ix_sweeps_state_created_at_id ON sweeps (state, created_at, id);

INSERT INTO autotuner_alembic_version VALUES ('0003');

INSERT INTO sweeps VALUES ('sw-finished00', 'nightly 1', '{"schema_version":1,"job":{"model":{"name":"tiny","num_layers":4,"hidden_size":64,"num_heads":4,"num_kv_heads":2,"head_dim":16,"ffn_size":128,"vocab_size":256,"gated_mlp":true,"tied_embeddings":false,"norm":"rmsnorm","attention_bias":"none","mlp_bias":false,"num_learned_positions":0,"qk_norm":false,"experts":null,"latent_attention":null},"cluster":{"name":"cpu:2","accelerator":{"name":"cpu","kind":"cpu","memory_bytes":4000000000,"memory_bandwidth_bytes_per_s":10000000000.0,"fp32_flop_per_s":100000000000.0,"bf16_flop_per_s":200000000000.0,"fp8_flop_per_s":0.0,"peak_source":"measured","power_w":0.0,"kernel_launch_s":5e-06,"attention_kernels":["math","flash"]},"num_nodes":1,"accelerators_per_node":2,"intra_node_link":{"name":"loopback","bandwidth_bytes_per_s":1000000000.0,"latency_s":0.0001},"inter_node_link":{"name":"loopback","bandwidth_bytes_per_s":1000000000.0,"latency_s":0.0001},"oversubscription":1.0,"price_per_accelerator_hour":0.0},"workload":{"seq_len":64,"global_batch_size":8,"optimizer_state_precision":"fp32"}},"space":{"tensor_parallel_degree":null,"pipeline_parallel_degree":null,"context_parallel_degree":[1],"expert_parallel_degree":null,"data_parallel_shard_degree":null,"virtual_stages_per_rank":null,"micro_batch_size":null,"pipeline_schedule":["1f1b","interleaved_1f1b"],"sequence_parallel":[false,true],"shard_level":["none","optimizer","parameters"],"reshard_after_forward":[false,true],"recompute":["none","full"],"attention_kernel":["math"],"precision":["fp32"]},"budget":{"num_trials":4,"wall_clock_s":null,"accelerator_hours":null,"patience":null,"prune_below":0.5},"trial":{"warmup_steps":2,"measured_steps":5,"timeout_s":300.0,"memory_budget_bytes":null,"learning_rate":0.001},"seed":0,"name":"finished"}', 'complete', 100.0, 101.0, 110.0, FALSE, NULL, NULL, 'trial_budget', '3 of 3 trials ran');
INSERT INTO sweeps VALUES ('sw-running000', NULL, '{"schema_version":1,"job":{"model":{"name":"tiny","num_layers":4,"hidden_size":64,"num_heads":4,"num_kv_heads":2,"head_dim":16,"ffn_size":128,"vocab_size":256,"gated_mlp":true,"tied_embeddings":false,"norm":"rmsnorm","attention_bias":"none","mlp_bias":false,"num_learned_positions":0,"qk_norm":false,"experts":null,"latent_attention":null},"cluster":{"name":"cpu:2","accelerator":{"name":"cpu","kind":"cpu","memory_bytes":4000000000,"memory_bandwidth_bytes_per_s":10000000000.0,"fp32_flop_per_s":100000000000.0,"bf16_flop_per_s":200000000000.0,"fp8_flop_per_s":0.0,"peak_source":"measured","power_w":0.0,"kernel_launch_s":5e-06,"attention_kernels":["math","flash"]},"num_nodes":1,"accelerators_per_node":2,"intra_node_link":{"name":"loopback","bandwidth_bytes_per_s":1000000000.0,"latency_s":0.0001},"inter_node_link":{"name":"loopback","bandwidth_bytes_per_s":1000000000.0,"latency_s":0.0001},"oversubscription":1.0,"price_per_accelerator_hour":0.0},"workload":{"seq_len":64,"global_batch_size":8,"optimizer_state_precision":"fp32"}},"space":{"tensor_parallel_degree":null,"pipeline_parallel_degree":null,"context_parallel_degree":[1],"expert_parallel_degree":null,"data_parallel_shard_degree":null,"virtual_stages_per_rank":null,"micro_batch_size":null,"pipeline_schedule":["1f1b","interleaved_1f1b"],"sequence_parallel":[false,true],"shard_level":["none","optimizer","parameters"],"reshard_after_forward":[false,true],"recompute":["none","full"],"attention_kernel":["math"],"precision":["fp32"]},"budget":{"num_trials":4,"wall_clock_s":null,"accelerator_hours":null,"patience":null,"prune_below":0.5},"trial":{"warmup_steps":2,"measured_steps":5,"timeout_s":300.0,"memory_budget_bytes":null,"learning_rate":0.001},"seed":0,"name":"running"}', 'running', 200.0, 201.0, NULL, FALSE, 'worker-b', 231.0, NULL, '');

INSERT INTO trials VALUES ('sw-finished00-0000', 'sw-finished00', 0, 'complete', '{"schema_version":1,"data_parallel_replicate_degree":1,"data_parallel_shard_degree":1,"tensor_parallel_degree":1,"context_parallel_degree":1,"expert_parallel_degree":1,"pipeline_parallel_degree":1,"virtual_stages_per_rank":1,"micro_batch_size":1,"pipeline_schedule":"1f1b","sequence_parallel":false,"shard_level":"none","reshard_after_forward":false,"recompute":"none","attention_kernel":"math","precision":"fp32","fused_norm":true}', 1, 1, 1, '{"schema_version":1,"step_time":{"matrix_s":1.0,"attention_s":0.0,"pointwise_s":0.0,"host_s":0.0,"recompute_s":0.0,"tensor_communication_s":0.1,"context_communication_s":0.0,"expert_communication_s":0.0,"pipeline_communication_s":0.0,"data_communication_s":0.2,"bubble_s":0.05,"optimizer_s":0.01},"memory":{"parameters_bytes":1000000.0,"gradients_bytes":1000000.0,"optimizer_bytes":2000000.0,"activations_bytes":1000000.0,"logits_bytes":100000.0,"buffers_bytes":0.0,"allowance_bytes":100000.0,"worst_stage":0},"tokens_per_s":376.0,"mfu":0.4,"hfu":0.4,"fits":true,"relative_error":null}', 1, 102.0, 102.75);
INSERT INTO trials VALUES ('sw-finished00-0001', 'sw-finished00', 1, 'complete', '{"schema_version":1,"data_parallel_replicate_degree":1,"data_parallel_shard_degree":1,"tensor_parallel_degree":2,"context_parallel_degree":1,"expert_parallel_degree":1,"pipeline_parallel_degree":1,"virtual_stages_per_rank":1,"micro_batch_size":1,"pipeline_schedule":"1f1b","sequence_parallel":false,"shard_level":"none","reshard_after_forward":false,"recompute":"none","attention_kernel":"math","precision":"fp32","fused_norm":true}', 2, 1, 1, '{"schema_version":1,"step_time":{"matrix_s":1.0,"attention_s":0.0,"pointwise_s":0.0,"host_s":0.0,"recompute_s":0.0,"tensor_communication_s":0.1,"context_communication_s":0.0,"expert_communication_s":0.0,"pipeline_communication_s":0.0,"data_communication_s":0.2,"bubble_s":0.05,"optimizer_s":0.01},"memory":{"parameters_bytes":1000000.0,"gradients_bytes":1000000.0,"optimizer_bytes":2000000.0,"activations_bytes":1000000.0,"logits_bytes":100000.0,"buffers_bytes":0.0,"allowance_bytes":100000.0,"worst_stage":0},"tokens_per_s":376.0,"mfu":0.4,"hfu":0.4,"fits":true,"relative_error":null}', 1, 103.0, 103.75);
INSERT INTO trials VALUES ('sw-finished00-0002', 'sw-finished00', 2, 'failed', '{"schema_version":1,"data_parallel_replicate_degree":1,"data_parallel_shard_degree":1,"tensor_parallel_degree":1,"context_parallel_degree":1,"expert_parallel_degree":1,"pipeline_parallel_degree":2,"virtual_stages_per_rank":1,"micro_batch_size":4,"pipeline_schedule":"1f1b","sequence_parallel":false,"shard_level":"none","reshard_after_forward":false,"recompute":"none","attention_kernel":"math","precision":"fp32","fused_norm":true}', 1, 2, 4, '{"schema_version":1,"step_time":{"matrix_s":1.0,"attention_s":0.0,"pointwise_s":0.0,"host_s":0.0,"recompute_s":0.0,"tensor_communication_s":0.1,"context_communication_s":0.0,"expert_communication_s":0.0,"pipeline_communication_s":0.0,"data_communication_s":0.2,"bubble_s":0.05,"optimizer_s":0.01},"memory":{"parameters_bytes":1000000.0,"gradients_bytes":1000000.0,"optimizer_bytes":2000000.0,"activations_bytes":1000000.0,"logits_bytes":100000.0,"buffers_bytes":0.0,"allowance_bytes":100000.0,"worst_stage":0},"tokens_per_s":376.0,"mfu":0.4,"hfu":0.4,"fits":true,"relative_error":null}', 1, 104.0, 104.75);
INSERT INTO trials VALUES ('sw-running000-0000', 'sw-running000', 0, 'running', '{"schema_version":1,"data_parallel_replicate_degree":1,"data_parallel_shard_degree":1,"tensor_parallel_degree":1,"context_parallel_degree":1,"expert_parallel_degree":1,"pipeline_parallel_degree":1,"virtual_stages_per_rank":1,"micro_batch_size":1,"pipeline_schedule":"1f1b","sequence_parallel":false,"shard_level":"none","reshard_after_forward":false,"recompute":"none","attention_kernel":"math","precision":"fp32","fused_norm":true}', 1, 1, 1, '{"schema_version":1,"step_time":{"matrix_s":1.0,"attention_s":0.0,"pointwise_s":0.0,"host_s":0.0,"recompute_s":0.0,"tensor_communication_s":0.1,"context_communication_s":0.0,"expert_communication_s":0.0,"pipeline_communication_s":0.0,"data_communication_s":0.2,"bubble_s":0.05,"optimizer_s":0.01},"memory":{"parameters_bytes":1000000.0,"gradients_bytes":1000000.0,"optimizer_bytes":2000000.0,"activations_bytes":1000000.0,"logits_bytes":100000.0,"buffers_bytes":0.0,"allowance_bytes":100000.0,"worst_stage":0},"tokens_per_s":376.0,"mfu":0.4,"hfu":0.4,"fits":true,"relative_error":null}', 1, 202.0, NULL);

INSERT INTO measurements VALUES ('sw-finished00-0000', 'sw-finished00', 0.25, 0.5, 1024.0, '{"schema_version":1,"step_time_s":0.5,"step_time_spread_s":0.01,"num_steps":5,"tokens_per_s":1024.0,"model_flop_per_s":50000000000.0,"mfu":0.25,"hfu":0.25,"peak_flop_per_s":200000000000.0,"peak_source":"measured GEMM rate of 2 cores","peak_bytes":[10000000,9000000],"phases":{"forward_backward_s":0.4,"gradient_sync_s":0.05,"optimizer_s":0.05},"losses":[5.5,5.4,5.3],"foreign_cpu_share":0.02,"environment":{"torch":"2.13.0"}}');
INSERT INTO measurements VALUES ('sw-finished00-0001', 'sw-finished00', 0.5, 0.5, 1024.0, '{"schema_version":1,"step_time_s":0.5,"step_time_spread_s":0.01,"num_steps":5,"tokens_per_s":1024.0,"model_flop_per_s":50000000000.0,"mfu":0.5,"hfu":0.25,"peak_flop_per_s":200000000000.0,"peak_source":"measured GEMM rate of 2 cores","peak_bytes":[10000000,9000000],"phases":{"forward_backward_s":0.4,"gradient_sync_s":0.05,"optimizer_s":0.05},"losses":[5.5,5.4,5.3],"foreign_cpu_share":0.02,"environment":{"torch":"2.13.0"}}');

INSERT INTO failures VALUES ('sw-finished00-0002', 'oom', '{"schema_version":1,"kind":"oom","message":"rank 1 ran out of memory","rank":1,"log_tail":"..."}');

INSERT INTO steps VALUES ('sw-finished00-0000', 0, '{"schema_version":1,"step":0,"is_warmup":false,"step_time_s":0.5,"loss":5.5,"tokens_per_s":1024.0,"mfu":0.25}');
INSERT INTO steps VALUES ('sw-finished00-0001', 0, '{"schema_version":1,"step":0,"is_warmup":false,"step_time_s":0.5,"loss":5.5,"tokens_per_s":1024.0,"mfu":0.25}');
INSERT INTO steps VALUES ('sw-finished00-0002', 0, '{"schema_version":1,"step":0,"is_warmup":false,"step_time_s":0.5,"loss":5.5,"tokens_per_s":1024.0,"mfu":0.25}');
INSERT INTO steps VALUES ('sw-running000-0000', 0, '{"schema_version":1,"step":0,"is_warmup":false,"step_time_s":0.5,"loss":null,"tokens_per_s":1024.0,"mfu":0.25}');

INSERT INTO events VALUES ('sw-finished00', 1, 100.0, 'sweep.created', '{"state": "queued", "owner": null, "stop_reason": null, "stop_detail": ""}');
INSERT INTO events VALUES ('sw-finished00', 2, 101.0, 'sweep.started', '{"state": "running", "owner": "worker-a", "stop_reason": null, "stop_detail": ""}');
INSERT INTO events VALUES ('sw-finished00', 3, 102.0, 'trial.started', '{"trial_id": "sw-finished00-0000", "number": 0, "state": "running", "attempts": 1, "mfu": null, "step_time_s": null, "failure_kind": null}');
INSERT INTO events VALUES ('sw-finished00', 4, 102.5, 'trial.step', '{"trial_id": "sw-finished00-0000", "number": 0, "step": 0, "is_warmup": false, "step_time_s": 0.5, "loss": 5.5, "tokens_per_s": 1024.0, "mfu": 0.25}');
INSERT INTO events VALUES ('sw-finished00', 5, 102.75, 'trial.finished', '{"trial_id": "sw-finished00-0000", "number": 0, "state": "complete", "attempts": 1, "mfu": 0.25, "step_time_s": 0.5, "failure_kind": null}');
INSERT INTO events VALUES ('sw-finished00', 6, 103.0, 'trial.started', '{"trial_id": "sw-finished00-0001", "number": 1, "state": "running", "attempts": 1, "mfu": null, "step_time_s": null, "failure_kind": null}');
INSERT INTO events VALUES ('sw-finished00', 7, 103.5, 'trial.step', '{"trial_id": "sw-finished00-0001", "number": 1, "step": 0, "is_warmup": false, "step_time_s": 0.5, "loss": 5.5, "tokens_per_s": 1024.0, "mfu": 0.25}');
INSERT INTO events VALUES ('sw-finished00', 8, 103.75, 'trial.finished', '{"trial_id": "sw-finished00-0001", "number": 1, "state": "complete", "attempts": 1, "mfu": 0.5, "step_time_s": 0.5, "failure_kind": null}');
INSERT INTO events VALUES ('sw-finished00', 9, 104.0, 'trial.started', '{"trial_id": "sw-finished00-0002", "number": 2, "state": "running", "attempts": 1, "mfu": null, "step_time_s": null, "failure_kind": null}');
INSERT INTO events VALUES ('sw-finished00', 10, 104.5, 'trial.step', '{"trial_id": "sw-finished00-0002", "number": 2, "step": 0, "is_warmup": false, "step_time_s": 0.5, "loss": 5.5, "tokens_per_s": 1024.0, "mfu": 0.25}');
INSERT INTO events VALUES ('sw-finished00', 11, 104.75, 'trial.finished', '{"trial_id": "sw-finished00-0002", "number": 2, "state": "failed", "attempts": 1, "mfu": null, "step_time_s": null, "failure_kind": "oom"}');
INSERT INTO events VALUES ('sw-finished00', 12, 110.0, 'sweep.finished', '{"state": "complete", "owner": null, "stop_reason": "trial_budget", "stop_detail": "3 of 3 trials ran"}');
INSERT INTO events VALUES ('sw-running000', 1, 200.0, 'sweep.created', '{"state": "queued", "owner": null, "stop_reason": null, "stop_detail": ""}');
INSERT INTO events VALUES ('sw-running000', 2, 201.0, 'sweep.started', '{"state": "running", "owner": "worker-b", "stop_reason": null, "stop_detail": ""}');
INSERT INTO events VALUES ('sw-running000', 3, 202.0, 'trial.started', '{"trial_id": "sw-running000-0000", "number": 0, "state": "running", "attempts": 1, "mfu": null, "step_time_s": null, "failure_kind": null}');
INSERT INTO events VALUES ('sw-running000', 4, 203.0, 'trial.step', '{"trial_id": "sw-running000-0000", "number": 0, "step": 0, "is_warmup": false, "step_time_s": 0.5, "loss": null, "tokens_per_s": 1024.0, "mfu": 0.25}');

INSERT INTO models VALUES ('tiny', '{"schema_version":1,"name":"tiny","num_layers":4,"hidden_size":64,"num_heads":4,"num_kv_heads":2,"head_dim":16,"ffn_size":128,"vocab_size":256,"gated_mlp":true,"tied_embeddings":false,"norm":"rmsnorm","attention_bias":"none","mlp_bias":false,"num_learned_positions":0,"qk_norm":false,"experts":null,"latent_attention":null}');

INSERT INTO clusters VALUES ('cpu:2', '{"schema_version":1,"name":"cpu:2","accelerator":{"name":"cpu","kind":"cpu","memory_bytes":4000000000,"memory_bandwidth_bytes_per_s":10000000000.0,"fp32_flop_per_s":100000000000.0,"bf16_flop_per_s":200000000000.0,"fp8_flop_per_s":0.0,"peak_source":"measured","power_w":0.0,"kernel_launch_s":5e-06,"attention_kernels":["math","flash"]},"num_nodes":1,"accelerators_per_node":2,"intra_node_link":{"name":"loopback","bandwidth_bytes_per_s":1000000000.0,"latency_s":0.0001},"inter_node_link":{"name":"loopback","bandwidth_bytes_per_s":1000000000.0,"latency_s":0.0001},"oversubscription":1.0,"price_per_accelerator_hour":0.0}');
INSERT INTO profiles VALUES ('local', '{"schema_version":1,"name":"local","measured_at":1.0,"device":"a core","host":"0123456789ab","num_ranks":2,"measurements":{"launch_s":3e-06,"gemm":[{"precision":"fp32","m":1000,"n":1000,"k":1000,"seconds":0.025},{"precision":"bf16","m":1000,"n":1000,"k":1000,"seconds":0.0125}],"attention":[{"kernel":"math","precision":"fp32","batch":1,"num_heads":4,"head_dim":50,"seq_len":500,"forward_s":0.01,"backward_s":0.02}],"traffic":[{"operation":"copy","num_bytes":200000000,"seconds":0.01}],"collectives":[{"kind":"all_gather","num_ranks":2,"num_bytes":2000,"seconds":0.0001},{"kind":"all_gather","num_ranks":2,"num_bytes":2002000,"seconds":0.0011}],"environment":{"torch":"2.13.0","device":"a core","host":"0123456789ab"}},"fp32_flop_per_s":80000000000.0,"bf16_flop_per_s":160000000000.0,"memory_bandwidth_bytes_per_s":20000000000.0,"launch_s":3e-06,"gemm":[{"precision":"fp32","peak_share":1.0},{"precision":"bf16","peak_share":1.0}],"attention":[{"kernel":"math","precision":"fp32","forward_share":0.25,"backward_share":0.3125}],"link_bandwidth_bytes_per_s":1000000000.0,"link_latency_s":0.0001}');
