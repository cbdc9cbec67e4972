//! What a context holds.

use std::mem;

use heapfit_sys as sys;

use super::Context;

/// What a context holds, in bytes where nothing else is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Of objects that are allocated and not freed, rounded up; in a region: allocated since all were
    /// freed.
    pub live_bytes: usize,
    /// In segments and large objects: what the transaction has needed so far. Does not shrink when small
    /// objects are freed.
    pub used_bytes: usize,
    /// The most that `used_bytes` has been since all was freed.
    pub peak_bytes: usize,
    /// Address space, in chunks and large objects; what the limit is for.
    pub footprint: usize,
    /// The most that `footprint` has been since all was freed.
    pub footprint_peak: usize,
    /// How many chunks there are.
    pub chunks: usize,
    /// How often all was freed.
    pub free_alls: usize,
}

impl Context {
    /// What the context holds now. Takes time in proportion to the objects that were freed one by one.
    ///
    /// ```
    /// use heapfit::{allocator_api2::boxed::Box, Context};
    ///
    /// let context = Context::new()?;
    /// let object = Box::new_in([0_u8; 1000], &context);
    /// assert!(context.stats().live_bytes >= 1000);
    /// drop(object);
    /// assert_eq!(context.stats().live_bytes, 0);
    /// # Ok::<(), heapfit::CreateError>(())
    /// ```
    pub fn stats(&self) -> Stats {
        let mut stats = sys::hf_context_stats::default();
        let size = mem::size_of_val(&stats);
        // SAFETY: this thread owns the context; `stats` has `size` bytes, and so it cannot fail.
        unsafe { sys::hf_context_stats_get(self.own(), &mut stats, size) };
        Stats {
            live_bytes: stats.live_bytes,
            used_bytes: stats.used_bytes,
            peak_bytes: stats.peak_bytes,
            footprint: stats.footprint,
            footprint_peak: stats.footprint_peak,
            chunks: stats.chunks,
            free_alls: stats.free_alls,
        }
    }
}
