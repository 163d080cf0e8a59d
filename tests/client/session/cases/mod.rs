//! The cases. Each takes a kind of session and opens its own.

/// One line for each module with its cases.
macro_rules! cases {
    ($($module:ident: $($case:ident),*;)*) => {
        $(
            mod $module;
            pub(crate) use $module::{$($case),*};
        )*

        /// Gives the name of each case to another macro.
        macro_rules! for_each_case {
            ($macro:ident) => { $($($macro! { $case })*)* };
        }
        pub(crate) use for_each_case;
    };
}

cases! {
    requests: a_session_knows_its_id_its_timeout_and_how_long_it_is_certain, each_request_gets_its_reply,
        a_batch_is_carried_out_and_answered_in_its_order, threads_get_each_the_replies_to_their_own_requests,
        a_callback_may_submit, a_request_waits_for_the_first_connection,
        a_request_that_was_not_sent_can_be_withdrawn_and_one_that_was_cannot, data_of_any_bytes_goes_both_ways,
        credentials_count_again_on_the_next_connection, rejected_credentials_end_the_session;
    watches: each_change_is_told_once_to_its_watches, a_watch_that_is_given_up_is_told_nothing_and_its_neighbour_is,
        a_znode_that_is_not_there_is_watched_by_exists_alone,
        a_watch_is_told_before_the_reply_to_what_came_after_the_change, a_watch_outlives_a_cut,
        a_change_during_a_cut_is_told_after_it;
    connections: a_session_and_its_znodes_outlive_a_cut, a_request_without_a_reply_is_lost_with_its_connection,
        heartbeats_move_the_certainty_on, a_silent_connection_is_left_before_the_session_can_have_ended,
        other_servers_are_used_from_the_next_connection_on;
    ends: a_session_that_the_server_has_ended_is_told_so, close_ends_everything_and_deletes_the_znodes,
        close_returns_at_its_deadline, abandon_ends_everything_at_once_and_the_znodes_go,
        a_session_that_is_dropped_is_closed;
}
