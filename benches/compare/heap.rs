//! How much heap is in use.

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Bytes that are allocated and not freed.
pub fn live() -> u64 {
    let stats = ALLOCATOR.stats();
    let grown = i64::try_from(stats.bytes_allocated)
        .unwrap_or(i64::MAX)
        .saturating_add(i64::try_from(stats.bytes_reallocated).unwrap_or(0));
    u64::try_from(grown.saturating_sub(i64::try_from(stats.bytes_deallocated).unwrap_or(0))).unwrap_or(0)
}
