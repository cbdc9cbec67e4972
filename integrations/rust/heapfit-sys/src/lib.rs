//! The C interface of heapfit, `heapfit/heapfit.h`, as it stands: the header's comments say what each
//! function promises and who may call it. The crate `heapfit` is safe to use and made of this one.
//!
//! The library is compiled into the program. It does not replace the program's `malloc`.
//!
//! ```
//! use heapfit_sys::{hf_free, hf_malloc, hf_usable_size};
//!
//! unsafe {
//!     let object = hf_malloc(100);
//!     assert!(!object.is_null());
//!     assert!(hf_usable_size(object) >= 100);
//!     hf_free(object);
//! }
//! ```

#![no_std]
#![allow(non_camel_case_types)] // C's names
#![warn(missing_docs)]

use core::ffi::c_void;
use core::marker::{PhantomData, PhantomPinned};

// core has them only since 1.64; these are what they are wherever heapfit runs.
#[allow(missing_docs)]
pub type c_int = i32;
#[allow(missing_docs)]
pub type c_long = i64;
#[cfg(target_arch = "x86_64")]
#[allow(missing_docs)]
pub type c_char = i8;
#[cfg(not(target_arch = "x86_64"))]
#[allow(missing_docs)]
pub type c_char = u8;

/// What every object of heapfit's own heap is aligned to.
pub const MALLOC_ALIGNMENT: usize = 16;

/// A context: a heap for objects that die together.
#[repr(C)]
pub struct hf_context {
    _opaque: [u8; 0],
    // Not to be sent or shared without thought, nor moved.
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// The kind of a context whose objects are freed one by one, and reused.
pub const HF_DEFRAG_DODGING: c_int = 0;
/// The kind of a context that frees nothing before it frees all.
pub const HF_REGION: c_int = 1;

/// How a context is made. Zero in any member stands for its default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hf_context_config {
    /// [`HF_DEFRAG_DODGING`] or [`HF_REGION`].
    pub kind: c_int,
    /// Not 0: ask the kernel for huge pages.
    pub huge_pages: c_int,
    /// Of objects: 16 or 8.
    pub alignment: usize,
    /// Bytes of address space that are taken at a time.
    pub chunk_size: usize,
    /// Bytes that are taken at a time for objects of one size.
    pub segment_size: usize,
    /// The sizes that objects are rounded up to.
    pub sizes: *const u32,
    /// How many these are.
    pub sizes_count: usize,
    /// Bytes of address space that the context may have.
    pub limit: usize,
    /// Bytes of address space that `hf_context_free_all` keeps.
    pub retain: usize,
}

impl Default for hf_context_config {
    fn default() -> Self {
        hf_context_config {
            kind: HF_DEFRAG_DODGING,
            huge_pages: 0,
            alignment: 0,
            chunk_size: 0,
            segment_size: 0,
            sizes: core::ptr::null(),
            sizes_count: 0,
            limit: 0,
            retain: 0,
        }
    }
}

/// What a context holds.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct hf_context_stats {
    /// Bytes of live objects, rounded up.
    pub live_bytes: usize,
    /// Bytes in segments and large objects.
    pub used_bytes: usize,
    /// The most that `used_bytes` has been since all was freed.
    pub peak_bytes: usize,
    /// Bytes of address space.
    pub footprint: usize,
    /// The most that `footprint` has been since all was freed.
    pub footprint_peak: usize,
    /// Chunks of address space.
    pub chunks: usize,
    /// How often all was freed.
    pub free_alls: usize,
}

/// The kind of an option that takes decimal digits.
pub const HF_OPTION_NUMBER: c_int = 0;
/// The kind of an option that takes digits with a suffix k, m, g.
pub const HF_OPTION_SIZE: c_int = 1;
/// The kind of an option that takes 0 or 1.
pub const HF_OPTION_FLAG: c_int = 2;
/// The kind of an option that takes a word.
pub const HF_OPTION_CHOICE: c_int = 3;

/// One option.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hf_option {
    /// Its name.
    pub name: *const c_char,
    /// What it does, in one line.
    pub description: *const c_char,
    /// One of `HF_OPTION_NUMBER` and so on.
    pub kind: c_int,
    /// Whether it may be set while the program runs.
    pub live: c_int,
    /// The default.
    pub initial: u64,
    /// The least value.
    pub minimum: u64,
    /// The greatest value.
    pub maximum: u64,
    /// The words that a choice takes, else null.
    pub choices: *const *const c_char,
    /// Whether the maximum stands for no limit, and is also written "unlimited".
    pub unlimited: c_int,
    /// Two words that a size also takes, for its minimum and its maximum, else null.
    pub words: *const *const c_char,
}

/// What the heap of the process holds.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct hf_stats {
    /// Objects allocated and not freed.
    pub live_objects: usize,
    /// Bytes that these may use.
    pub live_bytes: usize,
    /// Of these, objects that have spans of their own.
    pub large_objects: usize,
    /// Bytes of large objects.
    pub large_bytes: usize,
    /// Bytes in free blocks among live ones.
    pub free_bytes: usize,
    /// Bytes in free spans that have not been given back to the kernel.
    pub dirty_bytes: usize,
    /// Bytes of heapfit's own tables.
    pub own_bytes: usize,
    /// Bytes that may be resident because of heapfit.
    pub footprint: usize,
    /// Bytes of address space that are accessible.
    pub committed: usize,
    /// Bytes of address space that are reserved.
    pub reserved: usize,
    /// Bytes given back to the kernel since the start.
    pub purged: usize,
    /// System calls that this took.
    pub purges: usize,
    /// Thread heaps ever made.
    pub heaps: usize,
    /// Of these, without a thread.
    pub heaps_idle: usize,
    /// Spans in which objects of threads that have exited live on.
    pub orphan_spans: usize,
    /// Contexts that exist.
    pub contexts: usize,
    /// Bytes of address space that contexts have.
    pub context_bytes: usize,
    /// Of the committed bytes, those in memory; counted when asked for.
    pub resident: usize,
    /// Bytes of free spans that threads keep for themselves.
    pub cached_bytes: usize,
    /// Bytes of cleared spans that wait for `calloc`.
    pub zeroed_bytes: usize,
    /// `calloc`s that were given memory known to be zero.
    pub zeroed_hits: usize,
    /// `calloc`s above 1 KiB that had to clear theirs.
    pub zeroed_misses: usize,
    /// Committed bytes that huge pages were asked for, or taken from the kernel's pool.
    pub huge_bytes: usize,
    /// System calls that made address space accessible.
    pub commits: usize,
    /// System calls that asked for huge pages or did without them.
    pub advices: usize,
    /// How often a thread's bin was empty and was filled again.
    pub refills: usize,
    /// Lists of blocks that were handed over to the heap that they belong to.
    pub remote_batches: usize,
    /// Blocks in them.
    pub remote_blocks: usize,
    /// Threads that share heaps under a lock.
    pub threads_sharing: usize,
    /// NUMA nodes that free memory is kept apart for.
    pub nodes: usize,
    /// Places for guarded objects; 0 until there was one.
    pub guard_slots: usize,
    /// Objects that live there.
    pub guard_objects: usize,
    /// Objects that ever did.
    pub guard_samples: usize,
    /// Objects that were to be guarded, and found no place.
    pub guard_missed: usize,
}

/// The objects of one size class.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct hf_class_stats {
    /// Bytes of an object.
    pub block_size: usize,
    /// Spans that such objects lie in.
    pub spans: usize,
    /// Objects allocated and not freed.
    pub live_objects: usize,
    /// Blocks that exist and are free.
    pub free_objects: usize,
}

/// One heap: of a thread, shared by several, or of threads that are gone.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct hf_heap_stats {
    /// By which it can be told from the others; 0: of threads that are gone.
    pub number: usize,
    /// The kernel's number of the thread that has it; 0: none, -1: several share it.
    pub thread: c_long,
    /// Spans cut into blocks.
    pub spans: usize,
    /// Bytes of blocks that are in use, or kept for the next `malloc`.
    pub live_bytes: usize,
    /// Bytes of blocks that are free.
    pub free_bytes: usize,
    /// Bytes of free spans that it keeps.
    pub cached_bytes: usize,
    /// How often one of its bins was empty and was filled again.
    pub refills: usize,
}

/// The free memory of one NUMA node.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct hf_node_stats {
    /// Its number.
    pub node: usize,
    /// Bytes of free spans that have not been given back to the kernel.
    pub dirty_bytes: usize,
    /// Bytes of cleared spans that wait for `calloc`.
    pub zeroed_bytes: usize,
    /// Runs that went to a thread of another node.
    pub crossings: usize,
}

/// Resident memory of one cause. The header has the words for causes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hf_ledger_row {
    /// One of the header's words.
    pub cause: *const c_char,
    /// A file, or the name of a mapping.
    pub name: *const c_char,
    /// Whether it is heapfit's memory.
    pub in_heap: c_int,
    /// The number of the heap whose it is; -1: no one heap's.
    pub heap: c_long,
    /// The kernel's number of the thread; 0: none.
    pub thread: c_long,
    /// Bytes.
    pub resident: usize,
    /// Bytes in swap space.
    pub swapped: usize,
}

// Documented in heapfit.h, under the same names.
#[allow(missing_docs)]
extern "C" {
    pub fn hf_version() -> *const c_char;

    pub fn hf_malloc(size: usize) -> *mut c_void;
    pub fn hf_calloc(count: usize, size: usize) -> *mut c_void;
    pub fn hf_realloc(pointer: *mut c_void, size: usize) -> *mut c_void;
    pub fn hf_aligned_alloc(alignment: usize, size: usize) -> *mut c_void;
    pub fn hf_free(pointer: *mut c_void);
    pub fn hf_free_sized(pointer: *mut c_void, size: usize);
    pub fn hf_usable_size(pointer: *const c_void) -> usize;
    pub fn hf_good_size(size: usize) -> usize;
    pub fn hf_is_ours(pointer: *const c_void) -> c_int;
    pub fn hf_trim() -> usize;
    pub fn hf_footprint_shrink() -> usize;
    pub fn hf_footprint_restore();

    pub fn hf_context_create(config: *const hf_context_config) -> *mut hf_context;
    pub fn hf_context_destroy(context: *mut hf_context);
    pub fn hf_context_malloc(context: *mut hf_context, size: usize) -> *mut c_void;
    pub fn hf_context_calloc(context: *mut hf_context, count: usize, size: usize) -> *mut c_void;
    pub fn hf_context_realloc(
        context: *mut hf_context,
        pointer: *mut c_void,
        size: usize,
    ) -> *mut c_void;
    pub fn hf_context_aligned_alloc(
        context: *mut hf_context,
        alignment: usize,
        size: usize,
    ) -> *mut c_void;
    pub fn hf_context_free(context: *mut hf_context, pointer: *mut c_void);
    pub fn hf_context_free_all(context: *mut hf_context);
    pub fn hf_context_owns(context: *const hf_context, pointer: *const c_void) -> c_int;
    pub fn hf_context_switch(context: *mut hf_context) -> *mut hf_context;
    pub fn hf_context_current() -> *mut hf_context;
    pub fn hf_context_leave(context: *mut hf_context);
    pub fn hf_context_enter(context: *mut hf_context);
    pub fn hf_context_set_limit(context: *mut hf_context, limit: usize) -> c_int;
    pub fn hf_context_stats_get(
        context: *const hf_context,
        stats: *mut hf_context_stats,
        size: usize,
    ) -> c_int;

    pub fn hf_option_count() -> usize;
    pub fn hf_option_at(index: usize) -> *const hf_option;
    pub fn hf_option_set(name: *const c_char, value: *const c_char) -> c_int;
    pub fn hf_option_get(name: *const c_char, buffer: *mut c_char, capacity: usize) -> c_int;

    pub fn hf_stats_get(stats: *mut hf_stats, size: usize) -> c_int;
    pub fn hf_stats_classes(classes: *mut hf_class_stats, count: usize) -> usize;
    pub fn hf_stats_heaps(heaps: *mut hf_heap_stats, count: usize) -> usize;
    pub fn hf_stats_nodes(nodes: *mut hf_node_stats, count: usize) -> usize;
    pub fn hf_stats_print(file: c_int);
    pub fn hf_stats_json(file: c_int);

    pub fn hf_ledger(
        visit: Option<unsafe extern "C" fn(row: *const hf_ledger_row, argument: *mut c_void)>,
        argument: *mut c_void,
    ) -> c_int;
}
