-- A database as revision 0006 left it, in SQL that SQLite and PostgreSQL both read. Never edit: old databases do not change.

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
    name VARCHAR DEFAULT '' NOT NULL,
    model_name VARCHAR DEFAULT '' NOT NULL,
    cluster_name VARCHAR DEFAULT '' NOT NULL,
    metric VARCHAR(32) DEFAULT 'mfu' NOT NULL,
    budget TEXT DEFAULT '{}' NOT NULL,
    engine VARCHAR DEFAULT 'local' NOT NULL,
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
    world_size INTEGER DEFAULT 0 NOT NULL,
    stopped TEXT,
    jobs TEXT DEFAULT '[]' NOT NULL,
    busy_s DOUBLE PRECISION,
    num_busy INTEGER DEFAULT '0' NOT NULL,
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
    is_ranked BOOLEAN DEFAULT FALSE NOT NULL,
    value DOUBLE PRECISION DEFAULT 0 NOT NULL,
    step_time_interval_s DOUBLE PRECISION,
    noise_floor DOUBLE PRECISION,
    CONSTRAINT pk_measurements PRIMARY KEY (trial_id),
    CONSTRAINT fk_measurements_trial_id_trials FOREIGN KEY(trial_id) REFERENCES trials (id),
    CONSTRAINT fk_measurements_sweep_id_sweeps FOREIGN KEY(sweep_id) REFERENCES sweeps (id)
);
CREATE TABLE gates (
    trial_id VARCHAR NOT NULL,
    sweep_id VARCHAR NOT NULL,
    outcome VARCHAR(32) NOT NULL,
    accelerator_hours DOUBLE PRECISION NOT NULL,
    document TEXT NOT NULL,
    CONSTRAINT pk_gates PRIMARY KEY (trial_id),
    CONSTRAINT fk_gates_trial_id_trials FOREIGN KEY(trial_id) REFERENCES trials (id),
    CONSTRAINT fk_gates_sweep_id_sweeps FOREIGN KEY(sweep_id) REFERENCES sweeps (id)
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
CREATE INDEX ix_gates_sweep_id_accelerator_hours ON gates (sweep_id, accelerator_hours);
CREATE INDEX ix_measurements_ranking ON measurements (is_ranked, mfu DESC, trial_id);
CREATE INDEX ix_measurements_sweep_ranking ON measurements (sweep_id, is_ranked, value DESC, trial_id);
CREATE INDEX ix_sweeps_created_at_id ON sweeps (created_at, id);
CREATE INDEX ix_sweeps_state_created_at_id ON sweeps (state, created_at, id);
CREATE INDEX ix_trials_overview ON trials (sweep_id, state, started_at, finished_at, world_size, busy_s, num_busy);

INSERT INTO autotuner_alembic_version VALUES ('0006');

INSERT INTO sweeps VALUES ('sw-finished00', 'nightly 1', '{"schema_version":1,"job":{"model":{"name":"tiny","num_layers":4,"hidden_size":64,"num_heads":4,"num_kv_heads":2,"head_dim":16,"ffn_size":128,"vocab_size":256,"gated_mlp":true,"tied_embeddings":false,"norm":"rmsnorm","attention_bias":"none","mlp_bias":false,"num_learned_positions":0,"qk_norm":false,"experts":null,"latent_attention":null},"cluster":{"name":"cpu:2","accelerator":{"name":"cpu","kind":"cpu","memory_bytes":4000000000,"memory_bandwidth_bytes_per_s":10000000000.0,"fp32_flop_per_s":100000000000.0,"bf16_flop_per_s":200000000000.0,"fp8_flop_per_s":0.0,"peak_source":"measured","power_w":0.0,"kernel_launch_s":5e-06,"attention_kernels":["math","flash"]},"num_nodes":1,"accelerators_per_node":2,"intra_node_link":{"name":"loopback","bandwidth_bytes_per_s":1000000000.0,"latency_s":0.0001},"inter_node_link":{"name":"loopback","bandwidth_bytes_per_s":1000000000.0,"latency_s":0.0001},"oversubscription":1.0,"price_per_accelerator_hour":0.0},"workload":{"seq_len":64,"global_batch_size":8,"optimizer_state_precision":"fp32"}},"space":{"tensor_parallel_degree":null,"pipeline_parallel_degree":null,"context_parallel_degree":[1],"expert_parallel_degree":null,"data_parallel_shard_degree":null,"virtual_stages_per_rank":null,"micro_batch_size":null,"pipeline_schedule":["1f1b","interleaved_1f1b"],"sequence_parallel":[false,true],"shard_level":["none","optimizer","parameters"],"reshard_after_forward":[false,true],"recompute":["none","full"],"attention_kernel":["math"],"precision":["fp32"]},"budget":{"num_trials":4,"wall_clock_s":null,"accelerator_hours":null,"patience":null,"prune_below":0.5},"trial":{"warmup_steps":2,"measured_steps":5,"timeout_s":300.0,"memory_budget_bytes":null,"learning_rate":0.001},"seed":0,"name":"finished"}', 'complete', 100.0, 101.0, 110.0, FALSE, NULL, NULL, 'trial_budget', '3 of 3 trials ran', 'finished', 'tiny', 'cpu:2', 'mfu', '{"schema_version":1,"num_trials":4,"wall_clock_s":null,"accelerator_hours":null,"patience":null,"prune_below":0.5}', 'local');
INSERT INTO sweeps VALUES ('sw-gated00000', NULL, '{"schema_version":1,"job":{"model":{"name":"tiny","num_layers":4,"hidden_size":64,"num_heads":4,"num_kv_heads":2,"head_dim":16,"ffn_size":128,"vocab_size":256,"gated_mlp":true,"tied_embeddings":false,"norm":"rmsnorm","attention_bias":"none","mlp_bias":false,"num_learned_positions":0,"qk_norm":false,"experts":null,"latent_attention":null},"cluster":{"name":"cpu:2","accelerator":{"name":"cpu","kind":"cpu","memory_bytes":4000000000,"memory_bandwidth_bytes_per_s":10000000000.0,"fp32_flop_per_s":100000000000.0,"bf16_flop_per_s":200000000000.0,"fp8_flop_per_s":0.0,"peak_source":"measured","power_w":0.0,"sustained_share":0.9,"kernel_launch_s":5e-06,"attention_kernels":["math","flash"],"peak_is_measured":false,"host_bandwidth_bytes_per_s":31500000000.0,"measured_gemm":[],"measured_attention":[]},"num_nodes":1,"accelerators_per_node":2,"intra_node_link":{"name":"loopback","bandwidth_bytes_per_s":1000000000.0,"latency_s":0.0001,"start_s":0.0,"ramp_s":0.0,"efficiency":0.8,"multicast_efficiency":0.0,"congestion":0.0},"inter_node_link":{"name":"loopback","bandwidth_bytes_per_s":1000000000.0,"latency_s":0.0001,"start_s":0.0,"ramp_s":0.0,"efficiency":0.8,"multicast_efficiency":0.0,"congestion":0.0},"oversubscription":1.0,"price_per_accelerator_hour":0.0},"workload":{"seq_len":64,"global_batch_size":8,"optimizer_state_precision":"fp32"},"stack":{"name":"torch","sums_gradients_in_fp32":false,"balances_stages":false,"keeps_receive_buffers":true,"blocks_sends":false,"overlaps_tensor_backward":0.0,"gathers_logits":false,"selective_recompute":["all_but_products"],"fills_buckets":true,"widens_context_gradients":true,"fuses_loss":false,"overlaps_data_parallel":0.2,"matrix_slowdown":1.16,"pointwise_traffic":1.9,"unfused_norm_traffic":13.0,"kernel_launch_s":4e-05,"tensor_wait_s":0.0,"send_wait_s":0.0005,"step_overhead_s":0.005,"unfused_norm_bytes":5.0,"scores_alive":0.0,"logits_copies":2.0,"scatter":null,"activation_overhead":0.15,"allowance_bytes":2000000000}},"space":{"tensor_parallel_degree":null,"pipeline_parallel_degree":null,"context_parallel_degree":[1],"expert_parallel_degree":null,"data_parallel_shard_degree":null,"virtual_stages_per_rank":null,"micro_batch_size":null,"pipeline_schedule":["1f1b","interleaved_1f1b"],"sequence_parallel":[false,true],"shard_level":["none","optimizer","parameters"],"reshard_after_forward":[false,true],"recompute":["none","full"],"attention_kernel":["math"],"precision":["fp32"],"fused_norm":[true],"first_stage_less_layers":[0],"last_stage_less_layers":[0],"loss_parallel":[true],"async_tensor_parallel":[false],"context_exchange":["ring"],"recompute_every":[1],"gradient_bucket_bytes":[26214400],"fp32_gradient_reduce":[false],"fp8_recipe":["tensorwise"],"compiled":[false],"optimizer_kernel":["fused"],"offload_activations":[false]},"budget":{"num_trials":3,"wall_clock_s":null,"accelerator_hours":2.0,"patience":null,"prune_below":0.5,"min_gain":0.01},"trial":{"warmup_steps":2,"max_warmup_steps":20,"measured_steps":5,"max_measured_steps":40,"target_interval":0.01,"measuring_budget_s":5.0,"profiled_steps":1,"timeout_s":300.0,"memory_budget_bytes":null,"learning_rate":0.001,"max_gradient_norm":null,"max_foreign_share":0.1,"max_repeats":1,"num_runs":1,"proxy_layers_per_stage":[]},"seed":0,"name":"gated","objective":{"metric":"tokens_per_s"},"max_parallel_trials":1,"loss_gate":{"enabled":true,"num_steps":20,"num_seeds":3,"tolerance":0.02}}', 'complete', 10.0, 11.0, 20.0, FALSE, NULL, NULL, 'accelerator_hours_budget', '2 of 2 accelerator-hours are spent', 'gated', 'tiny', 'cpu:2', 'tokens_per_s', '{"schema_version":1,"num_trials":3,"wall_clock_s":null,"accelerator_hours":2.0,"patience":null,"prune_below":0.5,"min_gain":0.01}', 'local');
INSERT INTO sweeps VALUES ('sw-running000', NULL, '{"schema_version":1,"job":{"model":{"name":"tiny","num_layers":4,"hidden_size":64,"num_heads":4,"num_kv_heads":2,"head_dim":16,"ffn_size":128,"vocab_size":256,"gated_mlp":true,"tied_embeddings":false,"norm":"rmsnorm","attention_bias":"none","mlp_bias":false,"num_learned_positions":0,"qk_norm":false,"experts":null,"latent_attention":null},"cluster":{"name":"cpu:2","accelerator":{"name":"cpu","kind":"cpu","memory_bytes":4000000000,"memory_bandwidth_bytes_per_s":10000000000.0,"fp32_flop_per_s":100000000000.0,"bf16_flop_per_s":200000000000.0,"fp8_flop_per_s":0.0,"peak_source":"measured","power_w":0.0,"kernel_launch_s":5e-06,"attention_kernels":["math","flash"]},"num_nodes":1,"accelerators_per_node":2,"intra_node_link":{"name":"loopback","bandwidth_bytes_per_s":1000000000.0,"latency_s":0.0001},"inter_node_link":{"name":"loopback","bandwidth_bytes_per_s":1000000000.0,"latency_s":0.0001},"oversubscription":1.0,"price_per_accelerator_hour":0.0,"nvlink_domain":null,"engine":"slurm","queue":"batch"},"workload":{"seq_len":64,"global_batch_size":8,"optimizer_state_precision":"fp32"}},"space":{"tensor_parallel_degree":null,"pipeline_parallel_degree":null,"context_parallel_degree":[1],"expert_parallel_degree":null,"data_parallel_shard_degree":null,"virtual_stages_per_rank":null,"micro_batch_size":null,"pipeline_schedule":["1f1b","interleaved_1f1b"],"sequence_parallel":[false,true],"shard_level":["none","optimizer","parameters"],"reshard_after_forward":[false,true],"recompute":["none","full"],"attention_kernel":["math"],"precision":["fp32"]},"budget":{"num_trials":4,"wall_clock_s":null,"accelerator_hours":null,"patience":null,"prune_below":0.5},"trial":{"warmup_steps":2,"measured_steps":5,"timeout_s":300.0,"memory_budget_bytes":null,"learning_rate":0.001},"seed":0,"name":"running"}', 'running', 200.0, 201.0, NULL, FALSE, 'worker-b', 231.0, NULL, '', 'running', 'tiny', 'cpu:2', 'mfu', '{"schema_version":1,"num_trials":4,"wall_clock_s":null,"accelerator_hours":null,"patience":null,"prune_below":0.5}', 'slurm');

INSERT INTO trials VALUES ('sw-finished00-0000', 'sw-finished00', 0, 'complete', '{"schema_version":1,"data_parallel_replicate_degree":1,"data_parallel_shard_degree":1,"tensor_parallel_degree":1,"context_parallel_degree":1,"expert_parallel_degree":1,"pipeline_parallel_degree":1,"virtual_stages_per_rank":1,"micro_batch_size":1,"pipeline_schedule":"1f1b","sequence_parallel":false,"shard_level":"none","reshard_after_forward":false,"recompute":"none","attention_kernel":"math","precision":"fp32","fused_norm":true}', 1, 1, 1, '{"schema_version":1,"step_time":{"matrix_s":1.0,"attention_s":0.0,"pointwise_s":0.0,"host_s":0.0,"recompute_s":0.0,"tensor_communication_s":0.1,"context_communication_s":0.0,"expert_communication_s":0.0,"pipeline_communication_s":0.0,"data_communication_s":0.2,"bubble_s":0.05,"optimizer_s":0.01},"memory":{"parameters_bytes":1000000.0,"gradients_bytes":1000000.0,"optimizer_bytes":2000000.0,"activations_bytes":1000000.0,"logits_bytes":100000.0,"buffers_bytes":0.0,"allowance_bytes":100000.0,"worst_stage":0},"tokens_per_s":376.0,"mfu":0.4,"hfu":0.4,"fits":true,"relative_error":null,"precision_utilization":0.4}', 1, 102.0, 102.75, 1, NULL, '[]', NULL, 0);
INSERT INTO trials VALUES ('sw-finished00-0001', 'sw-finished00', 1, 'complete', '{"schema_version":1,"data_parallel_replicate_degree":1,"data_parallel_shard_degree":1,"tensor_parallel_degree":2,"context_parallel_degree":1,"expert_parallel_degree":1,"pipeline_parallel_degree":1,"virtual_stages_per_rank":1,"micro_batch_size":1,"pipeline_schedule":"1f1b","sequence_parallel":false,"shard_level":"none","reshard_after_forward":false,"recompute":"none","attention_kernel":"math","precision":"fp32","fused_norm":true}', 2, 1, 1, '{"schema_version":1,"step_time":{"matrix_s":1.0,"attention_s":0.0,"pointwise_s":0.0,"host_s":0.0,"recompute_s":0.0,"tensor_communication_s":0.1,"context_communication_s":0.0,"expert_communication_s":0.0,"pipeline_communication_s":0.0,"data_communication_s":0.2,"bubble_s":0.05,"optimizer_s":0.01},"memory":{"parameters_bytes":1000000.0,"gradients_bytes":1000000.0,"optimizer_bytes":2000000.0,"activations_bytes":1000000.0,"logits_bytes":100000.0,"buffers_bytes":0.0,"allowance_bytes":100000.0,"worst_stage":0},"tokens_per_s":376.0,"mfu":0.4,"hfu":0.4,"fits":true,"relative_error":null,"precision_utilization":0.4}', 1, 103.0, 103.75, 2, NULL, '[]', NULL, 0);
INSERT INTO trials VALUES ('sw-finished00-0002', 'sw-finished00', 2, 'failed', '{"schema_version":1,"data_parallel_replicate_degree":1,"data_parallel_shard_degree":1,"tensor_parallel_degree":1,"context_parallel_degree":1,"expert_parallel_degree":1,"pipeline_parallel_degree":2,"virtual_stages_per_rank":1,"micro_batch_size":4,"pipeline_schedule":"1f1b","sequence_parallel":false,"shard_level":"none","reshard_after_forward":false,"recompute":"none","attention_kernel":"math","precision":"fp32","fused_norm":true}', 1, 2, 4, '{"schema_version":1,"step_time":{"matrix_s":1.0,"attention_s":0.0,"pointwise_s":0.0,"host_s":0.0,"recompute_s":0.0,"tensor_communication_s":0.1,"context_communication_s":0.0,"expert_communication_s":0.0,"pipeline_communication_s":0.0,"data_communication_s":0.2,"bubble_s":0.05,"optimizer_s":0.01},"memory":{"parameters_bytes":1000000.0,"gradients_bytes":1000000.0,"optimizer_bytes":2000000.0,"activations_bytes":1000000.0,"logits_bytes":100000.0,"buffers_bytes":0.0,"allowance_bytes":100000.0,"worst_stage":0},"tokens_per_s":376.0,"mfu":0.4,"hfu":0.4,"fits":true,"relative_error":null,"precision_utilization":0.4}', 1, 104.0, 104.75, 2, NULL, '[]', NULL, 0);
INSERT INTO trials VALUES ('sw-gated00000-0000', 'sw-gated00000', 0, 'complete', '{"schema_version":1,"data_parallel_replicate_degree":1,"data_parallel_shard_degree":1,"tensor_parallel_degree":1,"context_parallel_degree":1,"expert_parallel_degree":1,"pipeline_parallel_degree":1,"virtual_stages_per_rank":1,"micro_batch_size":1,"pipeline_schedule":"1f1b","sequence_parallel":false,"shard_level":"none","reshard_after_forward":false,"recompute":"none","attention_kernel":"math","precision":"fp32","fused_norm":true,"first_stage_less_layers":0,"last_stage_less_layers":0,"loss_parallel":true,"async_tensor_parallel":false,"context_exchange":"ring","recompute_every":1,"gradient_bucket_bytes":26214400,"fp32_gradient_reduce":false,"fp8_recipe":"tensorwise","compiled":false,"optimizer_kernel":"fused","offload_activations":false}', 1, 1, 1, '{"schema_version":1,"step_time":{"matrix_s":1.0,"attention_s":0.0,"pointwise_s":0.0,"host_s":0.0,"recompute_s":0.0,"offload_s":0.0,"tensor_communication_s":0.1,"context_communication_s":0.0,"expert_communication_s":0.0,"pipeline_communication_s":0.0,"data_communication_s":0.2,"bubble_s":0.05,"optimizer_s":0.01},"memory":{"parameters_bytes":1000000.0,"gradients_bytes":1000000.0,"optimizer_bytes":2000000.0,"activations_bytes":1000000.0,"logits_bytes":100000.0,"buffers_bytes":0.0,"allowance_bytes":100000.0,"worst_stage":0},"tokens_per_s":376.0,"mfu":0.4,"hfu":0.4,"fits":true,"fit_probability":null,"relative_error":null,"validated":false,"precision_utilization":0.4}', 1, 12.0, 12.5, 1, NULL, '[]', NULL, 0);
INSERT INTO trials VALUES ('sw-gated00000-0001', 'sw-gated00000', 1, 'complete', '{"schema_version":1,"data_parallel_replicate_degree":1,"data_parallel_shard_degree":1,"tensor_parallel_degree":1,"context_parallel_degree":1,"expert_parallel_degree":1,"pipeline_parallel_degree":1,"virtual_stages_per_rank":1,"micro_batch_size":2,"pipeline_schedule":"1f1b","sequence_parallel":false,"shard_level":"none","reshard_after_forward":false,"recompute":"none","attention_kernel":"math","precision":"fp32","fused_norm":true,"first_stage_less_layers":0,"last_stage_less_layers":0,"loss_parallel":true,"async_tensor_parallel":false,"context_exchange":"ring","recompute_every":1,"gradient_bucket_bytes":26214400,"fp32_gradient_reduce":false,"fp8_recipe":"tensorwise","compiled":false,"optimizer_kernel":"fused","offload_activations":false}', 1, 1, 2, '{"schema_version":1,"step_time":{"matrix_s":1.0,"attention_s":0.0,"pointwise_s":0.0,"host_s":0.0,"recompute_s":0.0,"offload_s":0.0,"tensor_communication_s":0.1,"context_communication_s":0.0,"expert_communication_s":0.0,"pipeline_communication_s":0.0,"data_communication_s":0.2,"bubble_s":0.05,"optimizer_s":0.01},"memory":{"parameters_bytes":1000000.0,"gradients_bytes":1000000.0,"optimizer_bytes":2000000.0,"activations_bytes":1000000.0,"logits_bytes":100000.0,"buffers_bytes":0.0,"allowance_bytes":100000.0,"worst_stage":0},"tokens_per_s":376.0,"mfu":0.4,"hfu":0.4,"fits":true,"fit_probability":null,"relative_error":null,"validated":false,"precision_utilization":0.4}', 1, 13.0, 13.5, 1, NULL, '[{"engine":"slurm","name":"a-sw-gated00000-0001-0-0","handle":"4711","submitted_at":12.0,"phase":"lost","detail":"NodeFail","started_at":12.5,"ended_at":12.75},{"engine":"slurm","name":"a-sw-gated00000-0001-0-1","handle":"4712","submitted_at":12.75,"phase":"ended","detail":"","started_at":13.0,"ended_at":13.5}]', 0.75, 0);
INSERT INTO trials VALUES ('sw-gated00000-0002', 'sw-gated00000', 2, 'cancelled', '{"schema_version":1,"data_parallel_replicate_degree":1,"data_parallel_shard_degree":1,"tensor_parallel_degree":1,"context_parallel_degree":1,"expert_parallel_degree":1,"pipeline_parallel_degree":1,"virtual_stages_per_rank":1,"micro_batch_size":4,"pipeline_schedule":"1f1b","sequence_parallel":false,"shard_level":"none","reshard_after_forward":false,"recompute":"none","attention_kernel":"math","precision":"fp32","fused_norm":true,"first_stage_less_layers":0,"last_stage_less_layers":0,"loss_parallel":true,"async_tensor_parallel":false,"context_exchange":"ring","recompute_every":1,"gradient_bucket_bytes":26214400,"fp32_gradient_reduce":false,"fp8_recipe":"tensorwise","compiled":false,"optimizer_kernel":"fused","offload_activations":false}', 1, 1, 4, '{"schema_version":1,"step_time":{"matrix_s":1.0,"attention_s":0.0,"pointwise_s":0.0,"host_s":0.0,"recompute_s":0.0,"offload_s":0.0,"tensor_communication_s":0.1,"context_communication_s":0.0,"expert_communication_s":0.0,"pipeline_communication_s":0.0,"data_communication_s":0.2,"bubble_s":0.05,"optimizer_s":0.01},"memory":{"parameters_bytes":1000000.0,"gradients_bytes":1000000.0,"optimizer_bytes":2000000.0,"activations_bytes":1000000.0,"logits_bytes":100000.0,"buffers_bytes":0.0,"allowance_bytes":100000.0,"worst_stage":0},"tokens_per_s":376.0,"mfu":0.4,"hfu":0.4,"fits":true,"fit_probability":null,"relative_error":null,"validated":false,"precision_utilization":0.4}', 1, 14.0, 14.5, 1, '{"schema_version":1,"reason":"budget","detail":"2 of 2 accelerator-hours are spent"}', '[]', NULL, 0);
INSERT INTO trials VALUES ('sw-running000-0000', 'sw-running000', 0, 'running', '{"schema_version":1,"data_parallel_replicate_degree":1,"data_parallel_shard_degree":1,"tensor_parallel_degree":1,"context_parallel_degree":1,"expert_parallel_degree":1,"pipeline_parallel_degree":1,"virtual_stages_per_rank":1,"micro_batch_size":1,"pipeline_schedule":"1f1b","sequence_parallel":false,"shard_level":"none","reshard_after_forward":false,"recompute":"none","attention_kernel":"math","precision":"fp32","fused_norm":true}', 1, 1, 1, '{"schema_version":1,"step_time":{"matrix_s":1.0,"attention_s":0.0,"pointwise_s":0.0,"host_s":0.0,"recompute_s":0.0,"tensor_communication_s":0.1,"context_communication_s":0.0,"expert_communication_s":0.0,"pipeline_communication_s":0.0,"data_communication_s":0.2,"bubble_s":0.05,"optimizer_s":0.01},"memory":{"parameters_bytes":1000000.0,"gradients_bytes":1000000.0,"optimizer_bytes":2000000.0,"activations_bytes":1000000.0,"logits_bytes":100000.0,"buffers_bytes":0.0,"allowance_bytes":100000.0,"worst_stage":0},"tokens_per_s":376.0,"mfu":0.4,"hfu":0.4,"fits":true,"relative_error":null,"precision_utilization":0.4}', 1, 202.0, NULL, 1, NULL, '[{"engine":"slurm","name":"a-sw-running000-0000-0-0","handle":"4713","submitted_at":202.0,"phase":"running","detail":"","started_at":232.0,"ended_at":null}]', -232.0, 1);

INSERT INTO measurements VALUES ('sw-finished00-0000', 'sw-finished00', 0.25, 0.5, 1024.0, '{"schema_version":1,"step_time_s":0.5,"step_time_spread_s":0.01,"num_steps":5,"tokens_per_s":1024.0,"model_flop_per_s":50000000000.0,"mfu":0.25,"hfu":0.25,"peak_flop_per_s":200000000000.0,"peak_source":"measured GEMM rate of 2 cores","peak_bytes":[10000000,9000000],"phases":{"forward_backward_s":0.4,"gradient_sync_s":0.05,"optimizer_s":0.05},"losses":[5.5,5.4,5.3],"foreign_cpu_share":0.02,"environment":{"torch":"2.13.0"},"precision_flop_per_s":null}', TRUE, 0.25, NULL, NULL);
INSERT INTO measurements VALUES ('sw-finished00-0001', 'sw-finished00', 0.25, 0.5, 1024.0, '{"schema_version":1,"step_time_s":0.5,"step_time_spread_s":0.01,"num_steps":5,"tokens_per_s":1024.0,"model_flop_per_s":50000000000.0,"mfu":0.25,"hfu":0.125,"peak_flop_per_s":400000000000.0,"peak_source":"measured GEMM rate of 2 cores","peak_bytes":[10000000,9000000],"phases":{"forward_backward_s":0.4,"gradient_sync_s":0.05,"optimizer_s":0.05},"losses":[5.5,5.4,5.3],"foreign_cpu_share":0.02,"environment":{"torch":"2.13.0"},"precision_flop_per_s":null}', TRUE, 0.25, NULL, NULL);
INSERT INTO measurements VALUES ('sw-gated00000-0000', 'sw-gated00000', 0.25, 0.5, 1000.0, '{"schema_version":1,"step_time_s":0.5,"step_time_spread_s":0.01,"num_steps":5,"tokens_per_s":1000.0,"model_flop_per_s":50000000000.0,"mfu":0.25,"hfu":0.25,"peak_flop_per_s":200000000000.0,"peak_source":"measured GEMM rate of 2 cores","peak_bytes":[10000000,9000000],"phases":{"forward_backward_s":0.4,"gradient_sync_s":0.05,"optimizer_s":0.05},"losses":[5.5,5.4,5.3],"foreign_cpu_share":0.02,"environment":{"torch":"2.13.0"},"step_time_interval_s":0.005,"num_warmup_steps":null,"reserved_bytes":[],"breakdown":null,"compile_s":0.0,"power_w":null,"noise_floor":0.02,"num_disturbed":0,"extrapolated_from":[],"breakdown_failure":null,"precision_flop_per_s":200000000000.0}', TRUE, 1000.0, 0.005, 0.02);
INSERT INTO measurements VALUES ('sw-gated00000-0001', 'sw-gated00000', 0.25, 0.5, 1200.0, '{"schema_version":1,"step_time_s":0.5,"step_time_spread_s":0.01,"num_steps":5,"tokens_per_s":1200.0,"model_flop_per_s":50000000000.0,"mfu":0.25,"hfu":0.25,"peak_flop_per_s":200000000000.0,"peak_source":"measured GEMM rate of 2 cores","peak_bytes":[10000000,9000000],"phases":{"forward_backward_s":0.4,"gradient_sync_s":0.05,"optimizer_s":0.05},"losses":[5.5,5.4,5.3],"foreign_cpu_share":0.02,"environment":{"torch":"2.13.0"},"step_time_interval_s":0.005,"num_warmup_steps":null,"reserved_bytes":[],"breakdown":null,"compile_s":0.0,"power_w":null,"noise_floor":null,"num_disturbed":0,"extrapolated_from":[],"breakdown_failure":null,"precision_flop_per_s":200000000000.0}', TRUE, 1200.0, 0.005, NULL);

INSERT INTO gates VALUES ('sw-gated00000-0001', 'sw-gated00000', 'passed', 0.25, '{"schema_version":1,"outcome":"passed","detail":"the loss is 0.001 from the reference''s","reference":{"data_parallel_replicate_degree":1,"data_parallel_shard_degree":1,"tensor_parallel_degree":1,"context_parallel_degree":1,"expert_parallel_degree":1,"pipeline_parallel_degree":1,"virtual_stages_per_rank":1,"micro_batch_size":1,"pipeline_schedule":"1f1b","sequence_parallel":false,"shard_level":"none","reshard_after_forward":false,"recompute":"none","attention_kernel":"math","precision":"fp32","fused_norm":true,"first_stage_less_layers":0,"last_stage_less_layers":0,"loss_parallel":true,"async_tensor_parallel":false,"context_exchange":"ring","recompute_every":1,"gradient_bucket_bytes":26214400,"fp32_gradient_reduce":false,"fp8_recipe":"tensorwise","compiled":false,"optimizer_kernel":"fused","offload_activations":false},"candidate_losses":[[5.5,5.4],[5.6,5.5]],"reference_losses":[[5.5,5.3],[5.6,5.5]],"excess":0.001,"noise":0.0005,"tolerance":0.02,"accelerator_hours":0.25}');

INSERT INTO failures VALUES ('sw-finished00-0002', 'oom', '{"schema_version":1,"kind":"oom","message":"rank 1 ran out of memory","rank":1,"log_tail":"..."}');

INSERT INTO steps VALUES ('sw-finished00-0000', 0, '{"schema_version":1,"step":0,"is_warmup":false,"step_time_s":0.5,"loss":5.5,"tokens_per_s":1024.0,"mfu":0.25}');
INSERT INTO steps VALUES ('sw-finished00-0001', 0, '{"schema_version":1,"step":0,"is_warmup":false,"step_time_s":0.5,"loss":5.5,"tokens_per_s":1024.0,"mfu":0.125}');
INSERT INTO steps VALUES ('sw-finished00-0002', 0, '{"schema_version":1,"step":0,"is_warmup":false,"step_time_s":0.5,"loss":5.5,"tokens_per_s":1024.0,"mfu":0.25}');
INSERT INTO steps VALUES ('sw-running000-0000', 0, '{"schema_version":1,"step":0,"is_warmup":false,"step_time_s":0.5,"loss":null,"tokens_per_s":1024.0,"mfu":0.25}');

INSERT INTO events VALUES ('sw-finished00', 1, 100.0, 'sweep.created', '{"state": "queued", "owner": null, "stop_reason": null, "stop_detail": ""}');
INSERT INTO events VALUES ('sw-finished00', 2, 101.0, 'sweep.started', '{"state": "running", "owner": "worker-a", "stop_reason": null, "stop_detail": ""}');
INSERT INTO events VALUES ('sw-finished00', 3, 102.0, 'trial.started', '{"trial_id": "sw-finished00-0000", "number": 0, "state": "running", "attempts": 1, "mfu": null, "step_time_s": null, "failure_kind": null}');
INSERT INTO events VALUES ('sw-finished00', 4, 102.5, 'trial.step', '{"trial_id": "sw-finished00-0000", "number": 0, "step": 0, "is_warmup": false, "step_time_s": 0.5, "loss": 5.5, "tokens_per_s": 1024.0, "mfu": 0.25}');
INSERT INTO events VALUES ('sw-finished00', 5, 102.75, 'trial.finished', '{"trial_id": "sw-finished00-0000", "number": 0, "state": "complete", "attempts": 1, "mfu": 0.25, "step_time_s": 0.5, "failure_kind": null}');
INSERT INTO events VALUES ('sw-finished00', 6, 103.0, 'trial.started', '{"trial_id": "sw-finished00-0001", "number": 1, "state": "running", "attempts": 1, "mfu": null, "step_time_s": null, "failure_kind": null}');
INSERT INTO events VALUES ('sw-finished00', 7, 103.5, 'trial.step', '{"trial_id": "sw-finished00-0001", "number": 1, "step": 0, "is_warmup": false, "step_time_s": 0.5, "loss": 5.5, "tokens_per_s": 1024.0, "mfu": 0.125}');
INSERT INTO events VALUES ('sw-finished00', 8, 103.75, 'trial.finished', '{"trial_id": "sw-finished00-0001", "number": 1, "state": "complete", "attempts": 1, "mfu": 0.25, "step_time_s": 0.5, "failure_kind": null}');
INSERT INTO events VALUES ('sw-finished00', 9, 104.0, 'trial.started', '{"trial_id": "sw-finished00-0002", "number": 2, "state": "running", "attempts": 1, "mfu": null, "step_time_s": null, "failure_kind": null}');
INSERT INTO events VALUES ('sw-finished00', 10, 104.5, 'trial.step', '{"trial_id": "sw-finished00-0002", "number": 2, "step": 0, "is_warmup": false, "step_time_s": 0.5, "loss": 5.5, "tokens_per_s": 1024.0, "mfu": 0.25}');
INSERT INTO events VALUES ('sw-finished00', 11, 104.75, 'trial.finished', '{"trial_id": "sw-finished00-0002", "number": 2, "state": "failed", "attempts": 1, "mfu": null, "step_time_s": null, "failure_kind": "oom"}');
INSERT INTO events VALUES ('sw-finished00', 12, 110.0, 'sweep.finished', '{"state": "complete", "owner": null, "stop_reason": "trial_budget", "stop_detail": "3 of 3 trials ran"}');
INSERT INTO events VALUES ('sw-gated00000', 1, 10.0, 'sweep.created', '{"state": "queued", "owner": null, "stop_reason": null, "stop_detail": ""}');
INSERT INTO events VALUES ('sw-gated00000', 2, 11.0, 'sweep.started', '{"state": "running", "owner": "worker-c", "stop_reason": null, "stop_detail": ""}');
INSERT INTO events VALUES ('sw-gated00000', 3, 12.0, 'trial.started', '{"trial_id": "sw-gated00000-0000", "number": 0, "state": "running", "attempts": 1, "mfu": null, "step_time_s": null, "failure_kind": null, "stop_reason": null, "stop_detail": ""}');
INSERT INTO events VALUES ('sw-gated00000', 4, 12.5, 'trial.finished', '{"trial_id": "sw-gated00000-0000", "number": 0, "state": "complete", "attempts": 1, "mfu": 0.25, "step_time_s": 0.5, "failure_kind": null, "stop_reason": null, "stop_detail": ""}');
INSERT INTO events VALUES ('sw-gated00000', 5, 13.0, 'trial.started', '{"trial_id": "sw-gated00000-0001", "number": 1, "state": "running", "attempts": 1, "mfu": null, "step_time_s": null, "failure_kind": null, "stop_reason": null, "stop_detail": ""}');
INSERT INTO events VALUES ('sw-gated00000', 6, 13.25, 'trial.note', '{"trial_id": "sw-gated00000-0001", "number": 1, "note": "waits for the machine"}');
INSERT INTO events VALUES ('sw-gated00000', 7, 13.5, 'trial.finished', '{"trial_id": "sw-gated00000-0001", "number": 1, "state": "complete", "attempts": 1, "mfu": 0.25, "step_time_s": 0.5, "failure_kind": null, "stop_reason": null, "stop_detail": ""}');
INSERT INTO events VALUES ('sw-gated00000', 8, 13.75, 'trial.gated', '{"trial_id": "sw-gated00000-0001", "number": 1, "state": "complete", "attempts": 1, "mfu": 0.25, "step_time_s": 0.5, "failure_kind": null, "stop_reason": null, "stop_detail": "", "outcome": "passed", "detail": "the loss is 0.001 from the reference''s"}');
INSERT INTO events VALUES ('sw-gated00000', 9, 14.0, 'trial.started', '{"trial_id": "sw-gated00000-0002", "number": 2, "state": "running", "attempts": 1, "mfu": null, "step_time_s": null, "failure_kind": null, "stop_reason": null, "stop_detail": ""}');
INSERT INTO events VALUES ('sw-gated00000', 10, 14.5, 'trial.finished', '{"trial_id": "sw-gated00000-0002", "number": 2, "state": "cancelled", "attempts": 1, "mfu": null, "step_time_s": null, "failure_kind": null, "stop_reason": "budget", "stop_detail": "2 of 2 accelerator-hours are spent"}');
INSERT INTO events VALUES ('sw-gated00000', 11, 20.0, 'sweep.finished', '{"state": "complete", "owner": null, "stop_reason": "accelerator_hours_budget", "stop_detail": "2 of 2 accelerator-hours are spent"}');
INSERT INTO events VALUES ('sw-running000', 1, 200.0, 'sweep.created', '{"state": "queued", "owner": null, "stop_reason": null, "stop_detail": ""}');
INSERT INTO events VALUES ('sw-running000', 2, 201.0, 'sweep.started', '{"state": "running", "owner": "worker-b", "stop_reason": null, "stop_detail": ""}');
INSERT INTO events VALUES ('sw-running000', 3, 202.0, 'trial.started', '{"trial_id": "sw-running000-0000", "number": 0, "state": "running", "attempts": 1, "mfu": null, "step_time_s": null, "failure_kind": null}');
INSERT INTO events VALUES ('sw-running000', 4, 203.0, 'trial.step', '{"trial_id": "sw-running000-0000", "number": 0, "step": 0, "is_warmup": false, "step_time_s": 0.5, "loss": null, "tokens_per_s": 1024.0, "mfu": 0.25}');

INSERT INTO models VALUES ('tiny', '{"schema_version":1,"name":"tiny","num_layers":4,"hidden_size":64,"num_heads":4,"num_kv_heads":2,"head_dim":16,"ffn_size":128,"vocab_size":256,"gated_mlp":true,"tied_embeddings":false,"norm":"rmsnorm","attention_bias":"none","mlp_bias":false,"num_learned_positions":0,"qk_norm":false,"experts":null,"latent_attention":null}');

INSERT INTO clusters VALUES ('cpu:2', '{"schema_version":1,"name":"cpu:2","accelerator":{"name":"cpu","kind":"cpu","memory_bytes":4000000000,"memory_bandwidth_bytes_per_s":10000000000.0,"fp32_flop_per_s":100000000000.0,"bf16_flop_per_s":200000000000.0,"fp8_flop_per_s":0.0,"peak_source":"measured","power_w":0.0,"kernel_launch_s":5e-06,"attention_kernels":["math","flash"]},"num_nodes":1,"accelerators_per_node":2,"intra_node_link":{"name":"loopback","bandwidth_bytes_per_s":1000000000.0,"latency_s":0.0001},"inter_node_link":{"name":"loopback","bandwidth_bytes_per_s":1000000000.0,"latency_s":0.0001},"oversubscription":1.0,"price_per_accelerator_hour":0.0}');

INSERT INTO profiles VALUES ('local', '{"schema_version":1,"name":"local","measured_at":1.0,"device":"a core","host":"0123456789ab","num_ranks":2,"measurements":{"launch_s":3e-06,"gemm":[{"precision":"fp32","m":1000,"n":1000,"k":1000,"seconds":0.025},{"precision":"bf16","m":1000,"n":1000,"k":1000,"seconds":0.0125}],"attention":[{"kernel":"math","precision":"fp32","batch":1,"num_heads":4,"head_dim":50,"seq_len":500,"forward_s":0.01,"backward_s":0.02}],"traffic":[{"operation":"copy","num_bytes":200000000,"seconds":0.01}],"collectives":[{"kind":"all_gather","num_ranks":2,"num_bytes":2000,"seconds":0.0001},{"kind":"all_gather","num_ranks":2,"num_bytes":2002000,"seconds":0.0011}],"environment":{"torch":"2.13.0","device":"a core","host":"0123456789ab"}},"fp32_flop_per_s":80000000000.0,"bf16_flop_per_s":160000000000.0,"memory_bandwidth_bytes_per_s":20000000000.0,"launch_s":3e-06,"gemm":[{"precision":"fp32","peak_share":1.0},{"precision":"bf16","peak_share":1.0}],"attention":[{"kernel":"math","precision":"fp32","forward_share":0.25,"backward_share":0.3125}],"link_bandwidth_bytes_per_s":1000000000.0,"link_latency_s":0.0001}');
