"""The mutants of `make mutants`, package by package: one for each equation, rule and promise."""
# ruff: noqa: E501

from mutants import Mutant
from mutations_files import FILES

EQ_1 = "paper/test_section_3_2_attention.py::"
STACKS = "paper/test_section_3_1_stacks.py::"
REGULAR = "paper/test_section_5_4_regularization.py::"
RATE = "paper/test_section_5_3_optimizer.py::"
LAWS = "reference/test_search_laws.py::"
KERNELS = "unit/nn/test_kernels.py::"
BATCHES = "unit/data/test_batches.py::"
CORPUS = "unit/data/test_corpus.py::"
RULES = "system/test_training_rules.py::"
TRANSLATOR = "unit/inference/test_translator.py::"

NN = (
    Mutant(
        "attention-scale", "Eq. 1 divides scores by √d_k", "nn/attention.py",
        " / math.sqrt(query.shape[-1])", "", (f"{EQ_1}test_eq_1_equals_naive_loops",),
    ),
    Mutant(
        "attention-fast-scale", "the fast path divides by √d_k too", "nn/attention.py",
        "query.shape[-1] ** -0.5", "query.shape[-1] ** -0.25", (f"{EQ_1}test_fast_path_equals_eq_1",),
    ),
    Mutant(
        "mask-polarity", "True in a mask means: may attend", "nn/attention.py",
        "scores = scores.masked_fill(~mask, -math.inf)", "scores = scores.masked_fill(mask, -math.inf)",
        (f"{EQ_1}test_eq_1_equals_naive_loops",),
    ),
    Mutant(
        "softmax-axis", "the softmax of Eq. 1 is over the keys", "nn/attention.py",
        "softmax(dim=-1)\n    return weights @ value, weights", "softmax(dim=-2)\n    return weights @ value, weights",
        (f"{EQ_1}test_eq_1_equals_naive_loops",),
    ),
    Mutant(
        "causal-offset", "a position sees itself and what came before, not the next one", "nn/attention.py",
        ".tril()", ".tril(1)", (f"{EQ_1}test_causal_mask_hides_exactly_the_future",),
    ),
    Mutant(
        "window-width", "a window of size r reaches r // 2 to each side", "nn/attention.py",
        "<= size // 2", "< size // 2",
        ("paper/test_section_4_restricted.py::test_window_is_a_neighbourhood_of_its_size_around_each_position",),
    ),
    Mutant(
        "padding-mask", "nobody attends to padding", "nn/attention.py",
        "return None if real is None else real[:, None, None, :]", "return None", (f"{STACKS}test_no_padding_changes_an_output",),
    ),
    Mutant(
        "head-split", "a head is a block of neighbouring columns", "nn/backend/dispatch.py",
        "x.view(*x.shape[:2], n_heads, -1).transpose(1, 2)", "x.view(*x.shape[:2], -1, n_heads).movedim(-1, 1)",
        (f"{EQ_1}test_multi_head_equals_a_loop_over_heads",),
    ),
    Mutant(
        "head-join", "heads are concatenated in order before W^O", "nn/attention.py",
        "attend_fused(query, key, value, mask, self.dropout, self).transpose(1, 2)", "attend_fused(query, key, value, mask, self.dropout, self).flip(1).transpose(1, 2)",
        (f"{EQ_1}test_multi_head_equals_a_loop_over_heads",),
    ),
    Mutant(
        "cache-reorder", "a beam that goes on takes its parent's cache along", "nn/attention.py",
        "sentences[:, None] * self.beams + parents", "sentences[:, None] * self.beams + 0 * parents",
        (f"{LAWS}test_n_best_is_sorted_and_scores_are_those_of_its_tokens[transformer]", f"{LAWS}test_beam_search_equals_exhaustive_search[transformer-1.0-0.6]"),
    ),
    Mutant(
        "cache-window", "a cached step sees the same window as a whole sequence", "nn/attention.py",
        "shape[1] - reach - 1", "shape[1] - reach", (f"{LAWS}test_cached_steps_equal_uncached_decoding",),
    ),
    Mutant(
        "residual-sum", "LayerNorm(x + Sublayer(x)) adds x", "nn/backend/dispatch.py",
        "return norm(x + dropout(y))", "return norm(dropout(y))",
        (f"{STACKS}test_residual_and_norm_are_in_the_order_of_the_paper", f"{KERNELS}test_layers_without_gradients_give_the_same"),
    ),
    Mutant(
        "norm-place", "the norm is after the sum, or before the sub-layer where asked", "nn/layers.py",
        "sublayer(self.norm(x))", "sublayer(x)", (f"{STACKS}test_residual_and_norm_are_in_the_order_of_the_paper",),
    ),
    Mutant(
        "norm-epsilon", "model.norm_epsilon is what the norms add to the variance", "nn/layers.py",
        "nn.LayerNorm(config.d_model, config.norm_epsilon)", "nn.LayerNorm(config.d_model)",
        (f"{STACKS}test_norms_take_their_epsilon_from_the_settings",),
    ),
    Mutant(
        "embedding-scale", "embeddings are multiplied by √d_model", "nn/layers.py",
        "math.sqrt(config.d_model) if", "1.0 if",
        ("paper/test_section_3_4_embeddings.py::test_embeddings_are_scaled_by_the_root_of_d_model",),
    ),
    Mutant(
        "sinusoid-wavelength", "wavelengths reach 10000 · 2π", "nn/layers.py",
        "10000.0 **", "1000.0 **", ("paper/test_section_3_5_positions.py::test_sinusoids_equal_naive_loops",),
    ),
    Mutant(
        "sinusoid-order", "even dimensions are sines, odd ones cosines", "nn/layers.py",
        "torch.stack([angle.sin(), angle.cos()], dim=2)", "torch.stack([angle.cos(), angle.sin()], dim=2)",
        ("paper/test_section_3_5_positions.py::test_sinusoids_equal_naive_loops",),
    ),
    Mutant(
        "position-start", "a cached step knows how far it is", "nn/layers.py",
        "self.rows(start + x.shape[-2])[start:]", "self.rows(x.shape[-2])",
        ("paper/test_section_3_5_positions.py::test_a_start_place_shifts_the_positions",),
    ),
    Mutant(
        "dropout-scale", "what dropout leaves is scaled up, so that expectations stay", "nn/dropout.py",
        "256 / (256 - threshold)", "1.0", (f"{REGULAR}test_dropout_zeroes_its_share_and_keeps_the_expectation",),
    ),
    Mutant(
        "dropout-repeats", "every mask of a step is drawn anew", "nn/dropout.py",
        "_generator.masks += 1", "_generator.masks += 0",
        (f"{KERNELS}test_masks_of_a_seed_are_the_same_in_any_thread_and_differ_from_one_to_the_next",),
    ),
    Mutant(
        "smoothing-value", "label smoothing spreads ε over the vocabulary", "nn/loss.py",
        "smoothing * smooth, likelihood", "smoothing * likelihood, likelihood",
        (f"{REGULAR}test_smoothed_loss_and_gradients_equal_cross_entropy",),
    ),
    Mutant(
        "smoothing-gradient", "the gradient of the smoothed loss is its own", "nn/loss.py",
        "grad_weight -= (smoothing / vocab) * sum_of_states", "grad_weight -= 0 * sum_of_states",
        (f"{REGULAR}test_smoothed_loss_and_gradients_equal_cross_entropy",),
    ),
    Mutant(
        "loss-of-padding", "padding has no loss", "nn/loss.py",
        "tgt_out.flatten() != PAD", "tgt_out.flatten() >= PAD", (f"{REGULAR}test_padding_has_no_loss_and_no_gradient",),
    ),
    Mutant(
        "r-drop-strength", "R-Drop's strength is that of its paper", "nn/loss.py",
        "strength / 4", "strength / 2", (f"{REGULAR}test_consistent_loss_and_gradients_equal_torchs",),
    ),
)  # fmt: skip

BACKEND = (
    Mutant(
        "int8-offset", "bytes of 8-bit products are centred on 128", "nn/library/c/int8.c",
        "offsets[n] = 128 * sum;", "offsets[n] = 127 * sum;", ("unit/inference/test_int8.py::test_a_product_is_that_of_rounded_factors[False-shape1]",),
    ),
    Mutant(
        "kernel-dropout", "the C kernels drop what PyTorch would drop", "nn/library/c/layers.c",
        "to[i] = bytes[i] >= threshold ?", "to[i] = bytes[i] > threshold ?",
        (f"{KERNELS}test_dropout_has_the_mask_that_pytorch_would_have",),
    ),
    Mutant(
        "kernel-norm", "the C kernel's norm is LayerNorm", "nn/library/c/layers.c",
        "squares / (float)width + epsilon", "squares / (float)(width - 1) + epsilon",
        ("unit/nn/test_build.py::test_where_there_is_a_compiler_there_are_kernels", f"{KERNELS}test_norm_of_a_sum"),
    ),
    Mutant(
        "kernel-relu", "Eq. 2: max(0, xW + b)", "nn/library/c/layers.c",
        "sum < 0.0f ? 0.0f : sum", "sum", (f"{KERNELS}test_linear_and_relu",),
    ),
    Mutant(
        "kernel-bias", "Eq. 2 has a bias", "nn/library/c/layers.c",
        "float sum = x[row * width + i] + bias[i];", "float sum = x[row * width + i];", (f"{KERNELS}test_linear_and_relu",),
    ),
    Mutant(
        "kernel-softmax", "the C kernel's loss has the gradient of cross-entropy", "nn/library/c/loss.c",
        "each[label] += (smoothing - 1.0f) * *total;", "each[label] += smoothing * *total;", (f"{KERNELS}test_loss",),
    ),
    Mutant(
        "kernel-trial", "a library that computes something else is not used", "nn/library/trial.py",
        "sys.exit(main(sys.argv[1]))", "main(sys.argv[1])", ("unit/nn/test_build.py::test_a_library_is_tried_before_it_is_used",),
    ),
    Mutant(
        "plain-relu", "Eq. 2 without the kernels: max(0, xW + b)", "nn/backend/dispatch.py",
        "F.linear(x, weight, bias).relu_()", "F.linear(x, weight, bias)",
        ("paper/test_section_3_3_feed_forward.py::test_eq_2_equals_naive_loops", f"{KERNELS}test_linear_and_relu"),
    ),
)  # fmt: skip

MODELS = (
    Mutant(
        "decoder-sees-future", "the decoder's self-attention is causal", "models/transformer.py",
        "causal=True", "causal=False", (f"{STACKS}test_no_future_token_changes_an_earlier_output",),
    ),
    Mutant(
        "step-position", "every cached step is one place further", "models/transformer.py",
        "state.length += 1", "state.length += 0", (f"{LAWS}test_cached_steps_equal_uncached_decoding",),
    ),
    Mutant(
        "memory-select", "a sentence that goes on keeps its own memory", "models/transformer.py",
        "(key[sentences], value[sentences])", "(key[: len(sentences)], value[: len(sentences)])",
        (f"{LAWS}test_order_of_sentences_changes_nothing[transformer]", f"{LAWS}test_finished_sentences_leave_the_batch[transformer]"),
    ),
    Mutant(
        "gpt-sees-future", "a decoder-only model sees nothing that comes later", "models/decoder_only.py",
        "causal=True", "causal=False", ("unit/models/test_single_stack.py::test_a_decoder_sees_nothing_that_comes_later",),
    ),
    Mutant(
        "lstm-forget", "an LSTM keeps what its gate says", "models/cells.py",
        "keep.sigmoid() * c + write.sigmoid()", "c + write.sigmoid()",
        ("unit/models/test_models.py::test_cached_steps_equal_teacher_forced_decoding", "reference/test_torch_recurrent.py"),
    ),
)  # fmt: skip

TRAINING = (
    Mutant(
        "schedule-min", "Eq. 3 takes the lesser of rise and fall", "training/schedule.py",
        "min(step**-0.5, step * warmup_steps**-1.5)", "max(step**-0.5, step * warmup_steps**-1.5)",
        (f"{RATE}test_eq_3_equals_its_formula",),
    ),
    Mutant(
        "schedule-warmup", "Eq. 3 peaks at warmup_steps", "training/schedule.py",
        "step * warmup_steps**-1.5", "step * (2 * warmup_steps)**-1.5",
        (f"{RATE}test_eq_3_rises_linearly_to_its_peak_at_warmup_and_falls",),
    ),
    Mutant(
        "schedule-d-model", "Eq. 3 has d_model^−0.5", "training/schedule.py",
        "d_model**-0.5 *", "d_model**-1.0 *", (f"{RATE}test_eq_3_equals_its_formula",),
    ),
    Mutant(
        "adam-betas", "β₁ is that of the mean, β₂ that of the square", "training/schedule.py",
        "(config.beta1, config.beta2)", "(config.beta2, config.beta1)", (f"{RATE}test_adam_has_the_values_of_the_paper",),
    ),
    Mutant(
        "adam-epsilon", "Adam's ε is the setting", "training/schedule.py",
        "torch.optim.Adam(parameters, betas=betas, eps=config.epsilon, fused=fused)",
        "torch.optim.Adam(parameters, betas=betas, fused=fused)", (f"{RATE}test_adam_has_the_values_of_the_paper",),
    ),
    Mutant(
        "clipping", "no gradient is longer than train.clip", "training/loop.py",
        "self.config.clip or math.inf", "math.inf", (f"{RULES}test_a_gradient_is_as_long_as_the_clip_allows",),
    ),
    Mutant(
        "not-finite", "a step without a finite loss and gradient is skipped", "training/loop.py",
        "if bool(norm.isfinite()) and math.isfinite(loss):", "if True:", ("system/test_train_faults.py::test_a_step_that_is_not_finite_is_skipped_and_counted",),
    ),
    Mutant(
        "averaging-last", "the final model is the mean of the last train.average checkpoints", "training/loop.py",
        "[-self.config.average :]", "[-1:]", (f"{RULES}test_the_model_folder_holds_the_mean_of_the_last_checkpoints",),
    ),
    Mutant(
        "averaging-mean", "an average is a sum over its count", "training/checkpoint.py",
        "(tensor / len(checkpoints)).float()", "tensor.float()", ("unit/training/test_checkpoint.py::test_average_is_the_mean",),
    ),
    Mutant(
        "averaging-stops", "what was saved at a stop does not count in the average", "training/checkpoint.py",
        "% every == 0 or path == there[-1]", "% every >= 0",
        ("system/test_resume.py::test_stopped_twice_a_run_averages_the_same_checkpoints",),
    ),
    Mutant(
        "ema-decay", "the running average forgets as train.ema says", "training/loop.py",
        "max(1 - self.config.ema, 10 / (10 + self.state.step))", "10 / (10 + self.state.step)",
        (f"{RULES}test_a_running_average_forgets_as_its_decay_says_and_becomes_the_model",),
    ),
    Mutant(
        "resume-position", "a resumed run goes on in the data where it was", "training/run.py",
        "self.task.stream.place = ", "_ = ", ("system/test_resume.py::test_a_killed_run_ends_bit_identical",),
    ),
    Mutant(
        "resume-random", "a resumed run has its generator's state back", "training/run.py",
        'checkpoint.fill_random(found.tensors["random"])', "pass", (f"{RULES}test_a_resumed_run_draws_what_it_would_have_drawn",),
    ),
    Mutant(
        "resume-optimizer", "a resumed run has its optimizer's state back", "training/checkpoint.py",
        'optimizer.load_state_dict({"state": state,', 'optimizer.load_state_dict({"state": {},',
        ("unit/training/test_checkpoint.py::test_optimizer_goes_on_as_if_never_stopped",),
    ),
    Mutant(
        "gradient-mean", "the gradient is that of the mean over the real target tokens", "training/gradients.py",
        "self.recipe.batches.tokens / tokens", "1.0", (f"{RULES}test_the_gradient_is_that_of_the_mean_over_target_tokens",),
    ),
    Mutant(
        "dropout-of-steps", "dropout differs from step to step", "training/gradients.py",
        "key = (self.recipe.train.seed, step, number)", "key = (self.recipe.train.seed, 0, number)",
        (f"{RULES}test_dropout_differs_from_step_to_step_and_from_part_to_part",),
    ),
    Mutant(
        "dropout-of-parts", "dropout differs from micro-batch to micro-batch", "training/gradients.py",
        "key = (self.recipe.train.seed, step, number)", "key = (self.recipe.train.seed, step, 0)",
        (f"{RULES}test_dropout_differs_from_step_to_step_and_from_part_to_part",),
    ),
    Mutant(
        "all-reduce", "processes add up their gradients", "training/distributed.py",
        "dist.all_reduce(flat)", "pass", ("system/test_processes.py::test_weights_are_those_of_one_process",),
    ),
    Mutant(
        "fsdp-sum", "FSDP's mean over processes becomes the sum again", "training/fsdp.py",
        "self.group.size * self.recipe.batches.tokens / tokens", "self.recipe.batches.tokens / tokens",
        ("system/test_processes.py::test_weights_are_those_of_one_process",),
    ),
    Mutant(
        "checkpoint-damage", "a damaged checkpoint is passed over", "training/checkpoint.py",
        'manifest.verify(path, ["state.json"]) if part.endswith', "[each.name for each in path.iterdir()] if part.endswith",
        ("unit/training/test_checkpoint.py::test_newest_passes_over_damage_and_names_it",),
    ),
)  # fmt: skip

DATA = (
    Mutant(
        "shift-right", "the decoder reads the target shifted right", "data/batches.py",
        "tgt_out.roll(1, dims=1)", "tgt_out.clone()", (f"{BATCHES}test_targets_are_shifted_right",),
    ),
    Mutant(
        "token-budget", "a batch with its padding keeps to batches.tokens", "data/batches.py",
        "(place - start + 1) > budget", "(place - start) > budget", (f"{BATCHES}test_batches_keep_the_budget_on_both_sides",),
    ),
    Mutant(
        "bucketing", "pairs of like length share a batch", "data/batches.py",
        "np.lexsort((noise, source, target))", "np.argsort(noise)", (f"{BATCHES}test_pairs_of_like_length_share_a_batch",),
    ),
    Mutant(
        "shuffle-key", "the order of pairs depends on seed and epoch", "data/batches.py",
        "random_bits(4, *key)", "random_bits(4)", (f"{BATCHES}test_shuffled_is_a_keyed_permutation",),
    ),
    Mutant(
        "batch-order", "batches come in random order, not by length", "data/batches.py",
        "[plans[number] for number in turn]", "plans", (f"{BATCHES}test_batches_come_in_random_order",),
    ),
    Mutant(
        "stream-position", "the stream can be resumed from any batch", "data/batches.py",
        "self.place.batch + 1)", "self.place.batch)",
        (f"{BATCHES}test_the_stream_goes_on_from_any_batch",),
    ),
    Mutant(
        "fault-empty", "a pair with one empty side is dropped", "data/corpus.py",
        "if not pair.source.strip() or not pair.target.strip():", "if not pair.source.strip() and not pair.target.strip():",
        (f"{CORPUS}test_faults_are_counted_with_their_first_lines",),
    ),
    Mutant(
        "fault-too-long", "a pair with one side over data.max_chars is dropped", "data/corpus.py",
        "len(pair.source) > max_chars or len(pair.target) > max_chars", "len(pair.source) > max_chars",
        (f"{CORPUS}test_faults_are_counted_with_their_first_lines",),
    ),
    Mutant(
        "fault-nul", "a NUL character is a fault", "data/corpus.py",
        'if "\\0" in pair.source or "\\0" in pair.target:', "if False:",
        (f"{CORPUS}test_faults_are_counted_with_their_first_lines",),
    ),
    Mutant(
        "xz-padding", "no xz stream is lost behind padding", "data/text_files.py",
        "while packed and not (rest", "if packed and not (rest",
        ("unit/data/test_compressed.py::test_no_xz_stream_is_lost_behind_padding",),
    ),
    Mutant(
        "store-digests", "a damaged token store is noticed", "data/store.py",
        "        if found != sums[part]:", "        if False:",
        ("unit/data/test_store_damage.py::test_every_flipped_bit_is_noticed",),
    ),
    Mutant(
        "store-ids", "no id beyond the vocabulary reaches a model", "data/store.py",
        "int(ids.max()) >= self.vocabularies[side]", "False",
        ("unit/data/test_store_damage.py::test_ids_beyond_the_vocabulary_are_refused",),
    ),
    Mutant(
        "byte-order-mark", "a byte-order mark is no text", "data/text_files.py",
        "line.removeprefix(BYTE_ORDER_MARK) if number == 0 else line", "line", (f"{CORPUS}test_crlf_and_byte_order_mark",),
    ),
    Mutant(
        "subwords-normalise", "every text comes back exactly", "data/subword_learning.py",
        'normalization_rule_name="identity"', 'normalization_rule_name="nfkc"',
        ("unit/data/test_subwords.py::test_every_text_comes_back_exactly",),
    ),
    Mutant(
        "subwords-mark", "a ▁ of the text itself comes back", "data/subwords.py",
        "result[-4:] = self._mark_ids", "result[-4:] = []", ("unit/data/test_subwords.py::test_every_text_comes_back_exactly",),
    ),
    Mutant(
        "subwords-sampling", "sampled subwords are a function of the seed alone", "data/subword_sampling.py",
        "chance = random.Random(text)", "chance = random.Random()",
        ("unit/data/test_subwords.py::test_sampling_is_the_same_in_another_process",),
    ),
    Mutant(
        "shortlist-em", "IBM model 1 shares each target word out among its sources", "data/ibm1.py",
        "weight / np.bincount(found.slot, weight)[found.slot]", "np.ones_like(weight)",
        ("unit/data/test_shortlist.py::test_what_one_word_explains_no_other_need",),
    ),
    Mutant(
        "shortlist-fits", "a stranger's shortlist must fit the vocabulary", "data/shortlist.py",
        "(part < target_size)", "(part <= target_size)", ("unit/data/test_shortlist.py::test_a_strangers_list_must_fit",),
    ),
)  # fmt: skip

CORE = (
    Mutant(
        "manifest-sha256", "one changed bit is noticed", "core/manifest.py",
        "if sha256_of(folder / part) != sha256:", "if False:",
        ("unit/core/test_manifest.py::test_every_single_bit_of_every_file_counts",),
    ),
    Mutant(
        "manifest-seal", "a manifest is to the byte what was written", "core/manifest.py",
        'if content.decode("utf-8") not in known:', "if False:",
        ("unit/core/test_manifest.py::test_added_spaces_and_doubled_keys_are_not_what_was_written",),
    ),
    Mutant(
        "safe-names", "a manifest names files of its own folder alone", "core/manifest.py",
        'r"[A-Za-z0-9_-][A-Za-z0-9._-]*"', 'r"[^\\x00]+"',
        ("unit/core/test_manifest.py::test_names_outside_of_the_folder_are_refused",),
    ),
    Mutant(
        "atomic-files", "after a failure the old file is there, and nothing else", "core/files.py",
        "part = temporary_name(path, PART)", "part = path", ("unit/core/test_files.py",),
    ),
    Mutant(
        "random-bits", "random bits are a function of the whole key", "core/random.py",
        "repr(key).encode()", "repr(key[:1]).encode()", (f"{BATCHES}test_random_bits_are_fixed_for_ever",),
    ),
    Mutant(
        "exit-code-input", "wrong input ends with exit code 2", "core/errors.py",
        "exit_code = 2", "exit_code = 1", ("unit/core/test_console.py::test_exit_codes",),
    ),
)  # fmt: skip

INFERENCE = (
    Mutant(
        "length-penalty", "((5 + |Y|) / 6)^α", "inference/hypothesis.py",
        "((5 + length) / 6)", "((5 + length) / 5)", ("paper/test_section_6_results.py::test_length_penalty_equals_its_formula",),
    ),
    Mutant(
        "length-penalty-used", "hypotheses are ranked by the penalised score", "inference/finished.py",
        "score = log_probability / self._penalty(length)", "score = log_probability",
        (f"{LAWS}test_n_best_is_sorted_and_scores_are_those_of_its_tokens[transformer]", f"{LAWS}test_beam_search_equals_exhaustive_search[transformer-1.0-0.6]"),
    ),
    Mutant(
        "n-best-order", "the n best come best first", "inference/finished.py",
        "-hypothesis.score)", "hypothesis.score)", (f"{LAWS}test_n_best_is_sorted_and_scores_are_those_of_its_tokens[transformer]",),
    ),
    Mutant(
        "beam-end-rule", "a search ends early only if nothing better can come", "inference/finished.py",
        "len(finished) >= self.config.beam_size and as_it_stands", "len(finished) >= 1 and as_it_stands",
        ("unit/inference/test_search.py::test_one_hypothesis_that_has_ended_does_not_end_the_search",),
    ),
    Mutant(
        "beam-ended", "a hypothesis that has ended does not go on", "inference/search.py",
        "best.masked_fill(ended, -math.inf)", "best.clone()", (f"{LAWS}test_beam_search_equals_exhaustive_search[transformer-1.0-0.6]",),
    ),
    Mutant(
        "beam-limit", "at most input + 50 tokens", "inference/search.py",
        "len(row) - 1 + config.max_extra", "len(row) + config.max_extra",
        (f"{LAWS}test_greedy_search_that_is_cut_equals_the_naive_loop",),
    ),
    Mutant(
        "greedy-is-beam-1", "beam 1 is greedy search", "inference/search.py",
        "totals.topk(min(count, totals.shape[1]), dim=1)", "totals.topk(min(count, totals.shape[1]), dim=1, largest=False)",
        (f"{LAWS}test_beam_of_one_equals_a_naive_greedy_loop[transformer-20]",),
    ),
    Mutant(
        "special-tokens", "padding, <unk> and <s> are never written", "inference/search.py",
        "[PAD, UNK, BOS]", "[PAD, BOS]", (f"{LAWS}test_special_tokens_are_never_written",),
    ),
    Mutant(
        "forced-prefix", "a translation begins with its prefix", "inference/search.py",
        "other & (only >= 0)", "other & (only < -1)", (f"{LAWS}test_translations_begin_with_their_prefix[transformer-1]",),
    ),
    Mutant(
        "top-k", "top-k keeps k tokens", "inference/search.py",
        "probability[..., config.top_k :] = 0.0", "probability[..., config.top_k + 1 :] = 0.0",
        (f"{LAWS}test_draws_follow_the_sharpened_and_truncated_distribution",),
    ),
    Mutant(
        "top-p", "top-p keeps the fewest tokens that reach p", "inference/search.py",
        "before >= config.top_p", "before > 1", (f"{LAWS}test_draws_follow_the_sharpened_and_truncated_distribution",),
    ),
    Mutant(
        "temperature", "a low temperature sharpens", "inference/search.py",
        "scores / config.temperature", "scores * config.temperature",
        (f"{LAWS}test_draws_follow_the_sharpened_and_truncated_distribution",),
    ),
    Mutant(
        "sample-key", "samples differ from line to line", "inference/search.py",
        "uniform_numbers(longest, config.seed, key, each)", "uniform_numbers(longest, config.seed, 0, each)",
        (f"{LAWS}test_other_keys_and_seeds_give_other_samples[transformer]",),
    ),
    Mutant(
        "dedupe", "a line that occurs again in a chunk is translated once", "inference/translator.py",
        "number if config.sample else 0", "number", (f"{TRANSLATOR}test_a_line_that_occurs_again_is_translated_once",),
    ),
    Mutant(
        "piece-spaces", "pieces of a long line are joined with their spaces", "inference/translation.py",
        "each + piece.space for", "each for", (f"{TRANSLATOR}test_a_line_longer_than_usual_is_translated_sentence_by_sentence",),
    ),
    Mutant(
        "piece-prefix", "a prefix begins the first piece alone", "inference/translation.py",
        "prefix if number == 0 else []", "prefix", (f"{TRANSLATOR}test_a_prefix_begins_the_first_piece_alone",),
    ),
    Mutant(
        "piece-order", "pieces stay in order whatever ends first", "inference/translation.py",
        "sorted(found[index].items())", "found[index].items()", (f"{TRANSLATOR}test_pieces_stay_in_order_whatever_is_found_first",),
    ),
    Mutant(
        "bleu-tokeniser", "BLEU uses the tokeniser of the target language", "inference/score.py",
        "BLEU(trg_lang=target_lang)", "BLEU()", ("unit/inference/test_score.py",),
    ),
    Mutant(
        "perplexity", "perplexity is a mean over tokens", "inference/score.py",
        "sum(map(sum, rows)), sum(map(len, rows))", "sum(map(sum, rows)), len(rows)", ("unit/inference/test_score.py::test_perplexity_is_forced_decoding",),
    ),
)  # fmt: skip

LOOK = (
    Mutant(
        "head-off", "a head that is turned off adds nothing", "look/what_if.py",
        "weights[row][..., self.heads[sentence].head, :, :] = 0.0", "weights[row][..., self.heads[sentence].head, :, :] *= 1.0",
        ("unit/look/test_look_output.py::test_every_head_is_turned_off_in_turn",),
    ),
    Mutant(
        "aer", "alignment error rate is that of Och and Ney", "look/heads/aligner.py",
        "1 - (hits_sure + hits_possible) / max(1, links + sure)", "1 - (hits_sure + hits_possible) / max(1, 2 * links)",
        ("unit/look/test_heads.py::test_agreement",),
    ),
    Mutant(
        "alignment-sure", "sure links are found in both directions", "look/heads/aligner.py",
        "frozenset(there & turned)", "frozenset(there | turned)", ("unit/look/test_heads.py::test_sure_links_are_found_in_both_directions",),
    ),
    Mutant(
        "alignment-prior", "the aligner likes the diagonal", "look/heads/aligner.py",
        "np.exp(-TENSION * distance)", "np.exp(0 * distance)",
        ("unit/look/test_heads.py::test_the_prior_sums_to_one_and_likes_the_diagonal",),
    ),
    Mutant(
        "live-scale", "a live page divides by √d_k as Eq. 1 does", "look/page/engine/trace.js",
        "each / Math.sqrt(keyWidth)", "each / keyWidth", ("browser/test_live.py::test_one_head_step_by_step",),
    ),
    Mutant(
        "live-gates", "a live page of an LSTM has its gates", "look/page/engine/recurrent.js",
        "part(0, sigmoid), part(1, sigmoid)", "part(1, sigmoid), part(0, sigmoid)",
        ("browser/test_live_kinds.py::test_a_recurrent_translator_is_that_of_pytorch",),
    ),
    Mutant(
        "live-patches", "a live page of a ViT cuts patches row by row", "look/page/engine/vision.js",
        "(channel * height + row) * width + column", "(channel * height + column) * width + row",
        ("browser/test_live_kinds.py::test_an_image_is_classified_as_in_pytorch",),
    ),
)  # fmt: skip

PAPER = (
    Mutant(
        "bracket-f1", "F1 is the harmonic mean", "paper/parsing/brackets.py",
        "2 * precision * recall / (precision + recall)", "(precision + recall) / 2",
        ("unit/paper/test_brackets.py::test_a_corpus_is_the_sum_of_its_sentences", "reference/test_evalb.py"),
    ),
    Mutant(
        "bracket-once", "a bracket matches once", "paper/parsing/brackets.py",
        "(Counter(gold_brackets) & Counter(our_brackets)).total()", "sum(each in gold_brackets for each in our_brackets)",
        ("unit/paper/test_brackets.py::test_a_bracket_matches_once",),
    ),
    Mutant(
        "pcfg-probability", "the rules of a symbol share its probability", "paper/parsing/pcfg.py",
        "totals[rule[0]]) for rule, count in binary.items()", "binary.total()) for rule, count in binary.items()",
        ("unit/paper/test_pcfg.py::test_the_rules_of_a_symbol_share_its_probability",),
    ),
    Mutant(
        "pcfg-sibling", "a rule made binary remembers its sibling", "paper/parsing/pcfg.py",
        "REMEMBERED = 1", "REMEMBERED = 0",
        ("unit/paper/test_pcfg.py::test_rules_are_binary_know_their_parent_and_remember_a_sibling",),
    ),
)  # fmt: skip

CLI = (
    Mutant(
        "exit-code-interrupt", "Ctrl-C ends with 130", "cli/__init__.py",
        "return 128 + signal.SIGINT", "return 1", ("unit/cli/test_cli.py::test_an_interrupt_of_any_verb_ends_with_130",),
    ),
    Mutant(
        "closed-pipe", "a closed pipe is no failure", "cli/__init__.py",
        "discard_stdout()\n        return 0", "discard_stdout()\n        return 1",
        ("unit/cli/test_cli.py::test_a_closed_pipe_is_quiet",),
    ),
    Mutant(
        "memory-limit", "too little address space is said before it aborts", "core/process.py",
        "limit < needed", "False",
        ("system/test_environment.py::test_too_little_address_space_is_said",),
    ),
    Mutant(
        "dense-pieces", "no piece of an over-long line is above the limit", "inference/translation.py",
        "if parts == [[piece] for piece in pieces]:", "if True:",
        ("unit/inference/test_long_lines.py::test_no_piece_is_above_the_limit_and_nothing_is_lost",),
    ),
)  # fmt: skip

MUTANTS = (*NN, *BACKEND, *MODELS, *TRAINING, *DATA, *CORE, *INFERENCE, *LOOK, *PAPER, *CLI, *FILES)
