//! Blocks as the `Allocator` trait speaks of them: slices, and dangling pointers where there are no
//! bytes.

use std::alloc::Layout;
use std::ffi::c_void;
use std::ptr::{self, NonNull};

use allocator_api2::alloc::AllocError;

/// Where an object of no bytes stands: nowhere, but aligned.
pub(crate) fn dangling(layout: Layout) -> NonNull<u8> {
    // SAFETY: an alignment is never 0.
    unsafe { NonNull::new_unchecked(layout.align() as *mut u8) }
}

/// What C's functions return, null when memory has run out.
pub(crate) fn from_c(pointer: *mut c_void) -> Result<NonNull<u8>, AllocError> {
    NonNull::new(pointer.cast()).ok_or(AllocError)
}

/// A block of `size` bytes.
pub(crate) fn slice(start: NonNull<u8>, size: usize) -> NonNull<[u8]> {
    // SAFETY: `start` is not null.
    unsafe { NonNull::new_unchecked(ptr::slice_from_raw_parts_mut(start.as_ptr(), size)) }
}

/// Whether the block could be one of `layout`, as far as alignment goes.
pub(crate) fn is_aligned(start: NonNull<u8>, layout: Layout) -> bool {
    start.as_ptr() as usize & (layout.align() - 1) == 0
}

/// Fill with zeros what a block of the layout `new` has more than one of `old`.
///
/// # Safety
///
/// `start` is a block of `new.size()` bytes, which are not fewer than `old.size()`.
pub(crate) unsafe fn zero_tail(start: NonNull<u8>, old: Layout, new: Layout) {
    // SAFETY: the caller's promise.
    unsafe {
        start
            .as_ptr()
            .add(old.size())
            .write_bytes(0, new.size() - old.size())
    }
}
