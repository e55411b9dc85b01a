"""The columns of the answers: a wrong one is refused before anything is read, which may take minutes.

The catalogue does not need them, and an analysis has them whether there is data or not; a test holds both together.
"""

from __future__ import annotations

from steplens.analysis.catalogue import ANALYSES, find_analysis, recorded_table
from steplens.trace.names import TABLES

#: what the rows of several traces have besides, where a table is of one trace
OF_SEVERAL = ("rank", "window")

#: the name of a table -> its columns in their order
ANSWERS: dict[str, str] = {
    "steps": (
        "step start_ns duration_ns step_time_ns data_wait_ns forward_ns backward_ns gradient_sync_ns optimizer_ns "
        "device_wait_ns between_ns python_ns device_start_ns device_period_ns computing_ns exposed_communication_ns "
        "exposed_copy_ns idle_ns overlapped_communication_ns launched_computing_ns launched_communication_ns "
        "launched_copy_ns complete chosen"
    ),
    "step_trace": "step start_ns forward_ns backward_ns end_ns total_ns interval_ns forward_backward_ns tail_ns",
    "step_trace_averages": "part mean_ns median_ns p90_ns share steps",
    "step_collectives": "step model_id stream index name start_ns end_ns",
    "bound": "step duration_ns busy_ns busy_percent tasks mean_task_ns launches launching_ns launching_percent bound",
    "bound_by_operator": "name calls host_ns device_ns device_percent bound",
    "idle": "step cause idle_ns",
    "operators": "name calls self_ns total_ns device_self_ns device_total_ns self_percent device_percent",
    "operators_by_category": "category calls self_ns total_ns device_self_ns device_total_ns self_percent device_percent",
    "operators_by_shape": "name input_shapes calls self_ns total_ns device_self_ns device_total_ns self_percent device_percent",
    "operators_by_stack": "name stack calls self_ns total_ns device_self_ns device_total_ns self_percent device_percent",
    "operators_by_line": "line calls self_ns total_ns device_self_ns device_total_ns self_percent device_percent",
    "operators_by_module": "name calls self_ns total_ns device_self_ns device_total_ns self_percent device_percent",
    "shapes": (
        "name calls steps shapes most_shapes_in_step steps_with_new new_shapes new_percent mean_first_ns mean_repeated_ns dynamic"
    ),
    "shapes_by_step": "name step calls shapes new_shapes new_calls total_ns new_ns",
    "flops": (
        "name calls flops flops_percent bytes time_ns flops_per_second best_percent flops_per_byte "
        "attainable_flops_per_second attained_percent limit"
    ),
    "flops_by_shape": (
        "name input_shapes dtype calls flops flops_percent bytes time_ns flops_per_second best_percent flops_per_byte "
        "attainable_flops_per_second attained_percent limit"
    ),
    "flops_by_module": (
        "module calls flops flops_percent bytes time_ns flops_per_second best_percent flops_per_byte "
        "attainable_flops_per_second attained_percent limit"
    ),
    "flops_by_line": (
        "line calls flops flops_percent bytes time_ns flops_per_second best_percent flops_per_byte "
        "attainable_flops_per_second attained_percent limit"
    ),
    "flops_by_step": (
        "step calls flops flops_percent bytes time_ns flops_per_second best_percent flops_per_byte "
        "attainable_flops_per_second attained_percent limit"
    ),
    "kernels": "name kind count total_ns min_ns max_ns mean_ns std_ns ratio_percent",
    "kernels_by_type": "type kind count total_ns min_ns max_ns mean_ns std_ns ratio_percent",
    "kernels_by_category": "category kind count total_ns min_ns max_ns mean_ns std_ns ratio_percent",
    "kernels_by_kind": "kind count total_ns min_ns max_ns mean_ns std_ns ratio_percent",
    "op_statistic": "type core count total_ns min_ns mean_ns max_ns ratio_percent",
    "storms": "step device stream start_ns duration_ns tasks running_ns issuing_ns running_percent name module line",
    "launches": (
        "call tasks launch_total_ns launch_mean_ns launch_max_ns delay_mean_ns delay_max_ns short_tasks long_launches long_delays"
    ),
    "task_launches": "call name kind device stream correlation launch_ns launch_duration_ns task_duration_ns delay_ns wait_ns",
    "queues": "device stream changes mean std min median max time_mean empty_percent",
    "api_calls": "layer name count total_ns min_ns mean_ns max_ns variance_ns2 std_ns",
    "device_time": "device total_ns idle_ns compute_ns non_compute_ns idle_percent compute_percent non_compute_percent",
    "device_timeline": "part time_ns percent",
    "device_kinds": "kinds time_ns percent",
    "stream_idle": "device stream cause gaps idle_ns idle_percent",
    "memory": (
        "device_type device peak_allocated peak_allocated_ns peak_reserved peak_active allocations allocated_bytes "
        "open_allocations open_bytes"
    ),
    "memory_peak": "device_type device component peak_ns kind name blocks bytes percent",
    "memory_peak_by_module": "device_type device component peak_ns kind module blocks bytes percent",
    "memory_peak_by_line": "device_type device component peak_ns kind line blocks bytes percent",
    "memory_peak_by_phase": "device_type device component peak_ns kind allocated_in released_in blocks bytes percent",
    "memory_peak_by_block": (
        "device_type device component peak_ns kind address allocation_ns release_ns name module line allocated_in "
        "released_in blocks bytes percent"
    ),
    "memory_categories": "device_type device peak_ns category bytes percent",
    "memory_growth": (
        "rank device_type device windows steps first_bytes last_bytes bytes_per_step bytes_per_step_low bytes_per_step_high "
        "chance grows across_windows"
    ),
    "memory_churn": (
        "device_type device step allocations allocated_bytes within_call within_call_bytes within_step within_step_bytes "
        "median_life_ns releases released_bytes"
    ),
    "memory_churn_by_operator": (
        "device_type device name allocations allocated_bytes within_call within_call_bytes within_step within_step_bytes "
        "median_life_ns"
    ),
    "memory_churn_by_module": (
        "device_type device module allocations allocated_bytes within_call within_call_bytes within_step within_step_bytes "
        "median_life_ns"
    ),
    "memory_churn_by_line": (
        "device_type device line allocations allocated_bytes within_call within_call_bytes within_step within_step_bytes "
        "median_life_ns"
    ),
    "fragmentation": (
        "device_type device component step reserved_bytes allocated_bytes unused_bytes unused_percent most_unused_bytes "
        "mean_unused_bytes"
    ),
    "allocations": (
        "op bytes allocation_ns release_ns active_release_ns allocation_allocated allocation_reserved allocation_active "
        "release_allocated release_reserved release_active stream device_type device component name"
    ),
    "communication": (
        "operation operations bytes duration_ns wait_ns transfer_ns unexplained_ns wait_percent overlapped_ns exposed_ns "
        "exposed_percent bytes_per_second"
    ),
    "communication_by_group": (
        "group operations bytes duration_ns wait_ns transfer_ns unexplained_ns wait_percent overlapped_ns exposed_ns "
        "exposed_percent bytes_per_second"
    ),
    "communication_by_size": (
        "operation bytes_each operations bytes duration_ns wait_ns transfer_ns unexplained_ns wait_percent overlapped_ns "
        "exposed_ns exposed_percent bytes_per_second"
    ),
    "communication_by_step": (
        "step operations bytes duration_ns wait_ns transfer_ns unexplained_ns wait_percent overlapped_ns exposed_ns "
        "exposed_percent bytes_per_second"
    ),
    "communication_by_rank": (
        "rank operations bytes duration_ns wait_ns transfer_ns unexplained_ns wait_percent overlapped_ns exposed_ns "
        "exposed_percent bytes_per_second"
    ),
    "communication_operations": (
        "rank step group operation kind number bytes start_ns duration_ns wait_ns transfer_ns measured_by last_rank "
        "overlapped_ns exposed_ns bytes_per_second"
    ),
    "collectives": (
        "rank step name operation group ranks dtype number bytes start_ns in_step_ns duration_ns expected_ns wait_ns "
        "transfer_ns measured_by exposed_ns beyond_ns rate_bytes_per_s bus_bytes_per_s long"
    ),
    "bus_bandwidth": (
        "operation group ranks message_bytes bus_bytes_per_s algorithm_bytes_per_s bus_low_bytes_per_s bus_high_bytes_per_s "
        "bus_at_least_bytes_per_s messages measured transfer_ns error_ns measured_by"
    ),
    "bus_bandwidth_by_message": (
        "step group operation number ranks message_bytes bus_bytes_per_s algorithm_bytes_per_s bus_low_bytes_per_s "
        "bus_high_bytes_per_s transfer_ns transfer_low_ns transfer_high_ns measured_by"
    ),
    "arrivals": "step group operation number rank bytes start_ns end_ns place wait_ns transfer_ns hold_up_ns error_ns",
    "rank_clocks": "rank piece reference first_message_ns last_message_ns offset_ns drift_ppm error_ns messages",
    "hold_ups": "step rank hold_up_ns",
    "waits": "rank last_rank collectives wait_ns wait_percent",
    "pairs": "source destination sends receives bytes send_ns receive_ns bytes_per_second",
    "links": "rank step source destination transport time_ns bytes bytes_per_s",
    "process_groups": (
        "group description kind reason ranks recorded members hosts spans_hosts operations operations_per_step bytes_per_step "
        "duration_ns wait_ns transfer_ns unexplained_ns"
    ),
    "parallel_layout": "ranks data tensor pipeline context expert reason",
    "group_overlap": "kind operations in_flight_ns communication_ns overlapped_ns exposed_ns exposed_percent",
    "group_overlap_by_rank": "rank kind operations in_flight_ns communication_ns overlapped_ns exposed_ns exposed_percent",
    "group_overlap_by_step": "rank step kind operations in_flight_ns communication_ns overlapped_ns exposed_ns exposed_percent",
    "overlap": "device communication_ns overlapped_ns overlap_percent",
    "communication_times": (
        "name group kind step start_ns elapse_ms transit_ms wait_ms synchronization_ms idle_ms wait_ratio synchronization_ratio"
    ),
    "communication_bandwidth": (
        "name group kind step transport size_mb transit_ms bandwidth_gbps large_packet_ratio package_mb count duration_ms"
    ),
    "communication_matrix": (
        "step kind type group source destination selection transport size_mb transit_ms bandwidth_gbps op_name"
    ),
    "ranks": (
        "rank windows steps reason duration_ns step_time_ns data_wait_ns forward_ns backward_ns gradient_sync_ns optimizer_ns "
        "device_wait_ns between_ns python_ns device_period_ns computing_ns exposed_communication_ns exposed_copy_ns idle_ns "
        "overlapped_communication_ns launched_computing_ns launched_communication_ns launched_copy_ns slower_percent "
        "differs_most differs_ns"
    ),
    "rank_quantiles": (
        "name input_shapes slowest_rank times_median ranks calls step_min_ns step_p25_ns step_median_ns step_p75_ns step_max_ns "
        "single_min_ns single_p25_ns single_median_ns single_p75_ns single_max_ns"
    ),
    "rank_quantiles_by_operator": (
        "name input_shapes slowest_rank times_median ranks calls step_min_ns step_p25_ns step_median_ns step_p75_ns step_max_ns "
        "single_min_ns single_p25_ns single_median_ns single_p75_ns single_max_ns"
    ),
    "idle_gaps": ("step cause name before after number late_rank ranks rank start_ns idle_ns median_ns total_ns cause_ns"),
    "cluster_steps": (
        "rank stage step total_ns interval_ns forward_backward_ns tail_ns computation_ns communication_alone_ns stage_ns "
        "receive_alone_ns collective_alone_ns"
    ),
    "work": "rank flops flops_per_s utilization_percent normalized source",
    "communication_costs": "rank step transit_ns wait_ns",
    "core_types": "type total_ns count average_ns percent",
    "core_operators": (
        "name type subgraph average_ns count cube_flops cube_flops_per_s cube_utilization_percent vector_flops "
        "vector_flops_per_s vector_utilization_percent info"
    ),
    "ai_cpu_types": "type total_ns dispatch_ns count average_ns average_dispatch_ns percent",
    "dynamic_shapes": "step type total_ns count average_ns shapes",
    "dynamic_shapes_by_kernel": "step type total_ns count average_ns shapes",
    "pipeline": "operation id type workers parent children queue_capacity queue_sizes mean_size usage empty_share",
    "processors": "scope operation op name unit sample time_ns batch value",
    "loader_stages": "loader stage batches mean_ns p90_ns total_ns share",
    "loader_workers": "loader worker pid batches busy_ns wait_ns busy_share cpu_ns cpu_share",
    "loader_queues": "loader time_ns ready capacity usage",
    "loader_first_batches": "loader epoch start_ns delay_ns workers_ns",
    "loader_step_waits": "loader step batches next_ns wait_ns",
    "python_hotspots": (
        "thread name self_percent total_percent self_ns self_samples total_samples self_low_ns self_high_ns cpu_ns"
    ),
    "python_hotspots_by_line": (
        "thread line self_percent total_percent self_ns self_samples total_samples self_low_ns self_high_ns cpu_ns"
    ),
    "python_hotspots_by_thread": "thread samples time_ns cpu_ns cpu_percent name",
    "health": "check severity count message unsafe source",
}


def columns_of_table(name: str, by: str | None = None) -> tuple[str, ...] | None:
    """The columns of a table of one trace, without reading any; None where only its rows tell, as those of an installed package.

    Args:
        name: of a table, see ``catalogue.check_table``.
        by: one of its groups; None is that of the name, or the first.

    Raises:
        ValueError: there is no such table.
    """
    if (recorded := recorded_table(name)) is not None:
        return tuple(TABLES[recorded])
    analysis, group = find_analysis(name)
    if analysis not in ANALYSES:
        return None
    table_of_group = {group: table for table, group in analysis.tables()}
    return tuple(ANSWERS[table_of_group[by or group]].split())


def is_of_one_trace(name: str) -> bool:
    """Whether the rows of several traces have the columns ``OF_SEVERAL`` as well.

    Raises:
        ValueError: there is no such table.
    """
    return recorded_table(name) is not None or find_analysis(name)[0].scope == "trace"
