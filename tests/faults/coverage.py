"""Which test stands for which scenario of the collection of public faults, by its number there.

Tests are ``folder/test_file.py::test_name`` below tests/. A scenario without a test says why it cannot be one.
"""

from __future__ import annotations

from collections.abc import Mapping

_A, _B, _C, _G = (
    "faults/test_annotations.py::",
    "faults/test_budgets.py::",
    "faults/test_collectives.py::",
    "faults/test_gain.py::",
)
_K, _M, _R, _S = "faults/test_gangs.py::", "faults/test_memory.py::", "faults/test_races.py::", "faults/test_sync.py::"
_P = "program/checks/test_"

_NEVER_MEET = f"{_K}test_collectives_never_meet_in_an_emitted_graph"
_SAME_BITS = f"{_R}test_a_value_that_both_branches_read_is_the_same_for_both_in_every_order"
_CAP = f"{_B}test_the_memory_cap_is_kept_to_the_byte"

#: What is missing of a scenario, where its tests do not show all of it.
PARTLY: Mapping[str, str] = {
    "A01": "this torch_npu has no npu_dispatch_ffn_combine: the whole graph uses npu_moe_distribute_dispatch_v2; the fused "
    "kernel itself is judged in a program made by hand",
    "A21": "max-autotune has no events of the user's: that a graph waits for the default stream at its start and joins it at its "
    "end is the engine's work; the capture modes' events are judged in hand-written graphs",
    "A39": "autostream emits no guards, max-autotune keeps what another stream uses by itself: hand-written guards are judged",
    "A49": "how an engine hoists a cast needs that engine; the cast is labelled with its branch, so it cannot wait elsewhere",
    "G25": "how many gathers are in flight is the engine's own choice on its communication stream: bytes are capped, not gathers",
}

#: Scenario -> its tests.
TESTS: Mapping[str, tuple[str, ...]] = {
    "A01": (
        _NEVER_MEET,
        f"{_K}test_a01_the_whole_shape_shared_expert_with_its_reduction_beside_a_dispatch",
        f"{_P}contention.py::test_a01_fused_dispatch_and_all_reduce_on_vector_cores_never_overlap",
    ),
    "A03": (
        f"{_K}test_a03_without_their_order_we_and_torchair_reject_the_same_ones",
        f"{_P}contention.py::test_a03_gangs_must_fit_together_as_in_torchair",
        f"{_P}contention.py::test_on_two_streams_we_agree_with_torchair",
    ),
    "A04": (_NEVER_MEET, f"{_C}test_a04_collectives_of_different_groups_form_one_total_order"),
    "A05": (
        f"{_C}test_a05_side_streams_carry_no_collectives_by_default",
        f"{_C}test_a05_a59_a67_ranks_with_other_prices_meet_or_are_told_apart",
    ),
    "A07": (_NEVER_MEET, f"{_P}contention.py::test_a07_two_communicators_on_vector_cores_are_serialised"),
    "A09": (f"{_K}test_a09_collectives_that_the_pass_does_not_touch_are_not_called_safe",),
    "A10": (
        f"{_A}test_a10_attention_that_the_host_updates_stays_where_it_is",
        f"{_P}contention.py::test_a10_no_collective_runs_beside_attention_that_the_host_updates",
    ),
    "A11": (
        f"{_A}test_a11_labels_do_not_multiply_with_the_layers",
        f"{_B}test_a11_a13_streams_do_not_grow_with_the_layers",
    ),
    "A13": (
        f"{_B}test_a13_a_model_cut_into_layers_fills_the_budget_after_nine_sizes",
        "test_affordable.py::test_the_plan_for_few_events_is_the_one_for_few_waits",
        f"{_B}test_a13_a65_the_budget_is_one_of_the_process_over_graphs_of_every_family",
        f"{_B}test_a13_what_is_declined_takes_only_what_it_would_take_anyway",
        f"{_B}test_a13_an_offline_schedule_is_judged_alone_and_takes_nothing",
    ),
    "A15": (
        f"{_G}test_a15_a_moe_layer_without_a_second_branch_is_left_alone",
        f"{_G}test_a15_g24_a_graph_with_nothing_to_gain_is_bit_identical_in_either_slot",
    ),
    "A16": (
        f"{_M}test_a16_a18_g21_data_and_scale_that_a_side_stream_still_reads_are_given_away_at_any_size",
        f"{_M}test_a16_a18_what_the_pass_emits_keeps_both_to_the_join",
    ),
    "A18": (
        f"{_M}test_a16_a18_g21_data_and_scale_that_a_side_stream_still_reads_are_given_away_at_any_size",
        f"{_M}test_a16_a18_a_join_in_front_of_the_next_allocation_mends_it",
    ),
    "A20": (
        f"{_B}test_a20_a_view_on_a_side_stream_holds_the_whole_buffer",
        f"{_M}test_a20_a_view_keeps_the_whole_storage_and_not_its_own_size",
    ),
    "A21": (
        f"{_S}test_a21_a42_an_event_that_is_recorded_behind_its_wait_belongs_to_the_replay_before",
        f"{_S}test_a21_an_emitted_graph_names_no_event_and_repeats",
    ),
    "A23": (
        f"{_S}test_a23_a31_g29_each_mark_that_is_dropped_is_missed",
        f"{_S}test_a23_a35_a_side_branch_without_a_result_is_part_of_the_graph",
    ),
    "A26": (
        f"{_G}test_a26_another_backend_never_sees_scope_nodes",
        f"{_A}test_a47_a26_a_backend_with_other_words_gets_its_graph_back_with_the_reason",
    ),
    "A28": (_SAME_BITS, f"{_G}test_a28_a_padded_batch_and_its_mask_change_nothing_for_the_schedule"),
    "A30": (
        f"{_S}test_a30_a_wanted_region_is_told_scheduled_or_why_not",
        f"{_S}test_a30_a_wanted_region_that_a_flag_folded_away_is_an_error_in_strict_mode",
        f"{_S}test_a30_the_pass_tells_wishes_too",
    ),
    "A31": (
        f"{_A}test_a31_a_wait_for_a_record_that_is_gone_is_reported",
        f"{_S}test_a23_a31_g29_each_mark_that_is_dropped_is_missed",
        f"{_S}test_a31_a_wait_without_a_live_record_and_a_record_without_a_wait_are_reported",
    ),
    "A33": (_SAME_BITS, f"{_C}test_a33_one_quantised_activation_feeds_both_branches_as_it_is"),
    "A34": (
        f"{_A}test_a34_no_operator_waits_for_more_than_the_graph_asks_for",
        f"{_S}test_a34_the_hidden_wait_of_torchairs_own_example_is_visible",
        f"{_S}test_a34_g06_g07_emitted_graphs_wait_for_no_more_than_they_must_and_survive_dead_code_elimination",
    ),
    "A35": (
        f"{_A}test_a35_every_region_of_a_label_is_closed_and_joined_by_the_pass_itself",
        f"{_S}test_a23_a35_a_side_branch_without_a_result_is_part_of_the_graph",
    ),
    "A37": (f"{_A}test_a37_emitted_scopes_have_one_canonical_form_and_the_users_stay_as_they_are",),
    "A39": (f"{_S}test_a39_a_guard_on_a_copy_is_told_from_one_on_the_value",),
    "A40": (f"{_B}test_a40_g31_all_sizes_share_their_labels_and_the_report_tells_the_memory_of_each",),
    "A42": (
        f"{_A}test_a42_two_graphs_in_one_process_get_the_same_names_as_alone",
        f"{_S}test_a21_a42_an_event_that_is_recorded_behind_its_wait_belongs_to_the_replay_before",
        "test_stream_pass.py::test_a_second_run_on_a_scheduled_graph_changes_nothing",
        "test_api.py::test_two_runs_and_two_processes_give_the_same_bytes",
    ),
    "A44": (
        f"{_R}test_a44_a_buffer_made_in_place_is_not_overwritten_while_another_stream_reads_it",
        f"{_R}test_a44_g19_a_buffer_changed_in_place_keeps_its_place_among_its_readers",
    ),
    "A45": (
        f"{_A}test_a45_a_fusable_chain_is_not_cut",
        f"{_A}test_a45_a_chain_that_may_fuse_gets_one_label_in_either_slot",
    ),
    "A47": (
        f"{_A}test_a47_a26_a_backend_with_other_words_gets_its_graph_back_with_the_reason",
        f"{_A}test_a47_the_backend_that_is_known_gets_words_that_exist",
    ),
    "A48": (
        f"{_A}test_a48_a_saved_graph_keeps_label_names_not_stream_numbers",
        f"{_B}test_a48_a_schedule_that_is_loaded_in_a_new_process_has_the_same_streams",
    ),
    "A49": (f"{_G}test_a49_a_branch_too_short_to_show_is_not_taken_and_one_that_is_names_its_overlap",),
    "A51": (f"{_K}test_a51_a_collective_on_vector_cores_gets_sixteen_or_the_plan_is_refused",),
    "A52": (f"{_K}test_a52_a_core_limit_of_the_user_is_not_relied_on",),
    "A54": (
        _NEVER_MEET,
        f"{_P}contention.py::test_a04_a05_a54_a64_collectives_of_two_groups_in_no_order_fail_whatever_they_cost",
    ),
    "A55": (
        f"{_S}test_a55_a_stream_handed_as_an_event_is_named",
        f"{_S}test_a55_a_guard_for_the_stream_that_made_the_value_keeps_nothing",
    ),
    "A57": (
        f"{_G}test_a57_prefetches_that_cannot_pay_are_named",
        f"{_G}test_a57_a_prefetch_stays_in_front_of_what_uses_the_weight",
    ),
    "A59": (
        f"{_C}test_a59_the_order_of_collectives_depends_on_the_graph_and_not_on_the_prices",
        f"{_C}test_a05_a59_a67_ranks_with_other_prices_meet_or_are_told_apart",
        f"{_P}ranks.py::test_a59_a_collective_that_only_some_ranks_issue_is_found",
    ),
    "A62": (
        f"{_R}test_a62_a_cache_written_without_a_result_that_is_used_precedes_the_attention_that_reads_it",
        f"{_R}test_a62_two_layers_that_share_a_pool_keep_read_before_write",
        f"{_R}test_a62_g22_a_cache_is_read_and_written_in_the_order_of_the_graph",
    ),
    "A64": (
        _NEVER_MEET,
        f"{_K}test_a64_kernels_of_one_kind_take_turns_and_of_two_kinds_run_together",
        f"{_G}test_a64_two_cube_kernels_beside_each_other_are_not_credited_and_cube_beside_vector_is",
    ),
    "A65": (f"{_B}test_a13_a65_the_budget_is_one_of_the_process_over_graphs_of_every_family",),
    "A67": (
        f"{_C}test_a05_a59_a67_ranks_with_other_prices_meet_or_are_told_apart",
        "test_agreement.py::test_the_pass_leaves_the_graph_alone_on_every_rank_if_one_has_another_plan",
    ),
    "G02": (f"{_S}test_g02_one_event_awaited_on_two_streams_is_reported_and_two_events_are_not",),
    "G04": (
        f"{_A}test_g04_names_of_streams_are_kept_whatever_their_order",
        f"{_A}test_g04_the_schedule_does_not_depend_on_what_streams_are_called",
    ),
    "G06": (
        f"{_A}test_g06_every_planned_stream_is_still_there_after_dead_code_elimination",
        f"{_A}test_g06_every_stream_of_the_plan_is_in_the_ir",
        f"{_A}test_g06_a_backend_that_drops_the_labels_is_found_out",
    ),
    "G07": (f"{_S}test_a34_g06_g07_emitted_graphs_wait_for_no_more_than_they_must_and_survive_dead_code_elimination",),
    "G08": (
        f"{_M}test_g08_memory_is_told_by_the_stream_that_allocates_it_and_not_merged",
        f"{_P}lifetimes.py::test_pools_of_two_streams_are_not_merged",
    ),
    "G10": (f"{_B}test_g10_a_join_per_layer_gives_memory_back_and_none_at_all_keeps_every_layer",),
    "G12": (_CAP, f"{_P}lifetimes.py::test_independent_branches_all_at_once_take_all_their_memory"),
    "G14": (
        f"{_R}test_g14_a_clone_is_taken_before_its_source_is_overwritten",
        f"{_P}lifetimes.py::test_a_clone_on_the_side_stream_needs_its_source_until_it_has_run",
    ),
    "G16": (_SAME_BITS, f"{_R}test_g16_a_normed_and_a_raw_value_of_one_shape_are_not_confused"),
    "G17": (
        f"{_G}test_g17_the_decision_follows_the_batch_and_an_unchosen_graph_costs_nothing",
        f"{_G}test_g17_the_decision_changes_with_the_batch_and_the_threshold_with_the_option",
    ),
    "G19": (
        f"{_R}test_g19_two_operators_on_one_storage_are_never_reordered",
        f"{_R}test_a44_g19_a_buffer_changed_in_place_keeps_its_place_among_its_readers",
    ),
    "G21": (
        f"{_M}test_a16_a18_g21_data_and_scale_that_a_side_stream_still_reads_are_given_away_at_any_size",
        f"{_P}lifetimes.py::test_a_reuse_is_found_at_any_size",
    ),
    "G22": (f"{_R}test_a62_g22_a_cache_is_read_and_written_in_the_order_of_the_graph",),
    "G24": (f"{_G}test_a15_g24_a_graph_with_nothing_to_gain_is_bit_identical_in_either_slot",),
    "G25": (_CAP, f"{_P}lifetimes.py::test_prefetched_gathers_are_counted_as_many_as_are_in_flight"),
    "G28": (
        f"{_C}test_g28_ranks_that_do_not_keep_the_order_are_found",
        f"{_P}ranks.py::test_g28_two_ranks_that_issue_collectives_in_two_orders_wait_in_a_circle",
    ),
    "G29": (
        f"{_S}test_a23_a31_g29_each_mark_that_is_dropped_is_missed",
        f"{_P}contention.py::test_g29_gangs_and_a_stream_that_is_not_joined_are_both_found",
    ),
    "G31": (f"{_B}test_a40_g31_all_sizes_share_their_labels_and_the_report_tells_the_memory_of_each",),
    "G32": (_CAP,),
    "G33": (f"{_G}test_a49_a_branch_too_short_to_show_is_not_taken_and_one_that_is_names_its_overlap",),
    "G36": (
        _NEVER_MEET,
        f"{_C}test_g36_two_collectives_of_one_group_stay_ordered_even_when_allowed_on_side_streams",
        f"{_P}contention.py::test_g36_one_group_on_two_streams_needs_an_order",
    ),
}
