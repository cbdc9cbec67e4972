//! heapfit as the allocator of the program.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_void;
use std::ptr::{self, NonNull};

use allocator_api2::alloc::{AllocError, Allocator};
use heapfit_sys as sys;

use crate::block;

/// heapfit's heap, the one that all threads share.
///
/// As the program's global allocator it serves everything that Rust code allocates; C code goes on
/// with the C library's `malloc`. What one thread allocates another may free.
///
/// ```
/// use heapfit::Heapfit;
///
/// #[global_allocator]
/// static HEAP: Heapfit = Heapfit;
///
/// let greeting = String::from("served by heapfit");
/// std::thread::spawn(move || drop(greeting)).join().unwrap();
/// ```
///
/// It is also an [`Allocator`] for single containers, whatever the program's global allocator is:
///
/// ```
/// use heapfit::{allocator_api2::vec::Vec, Heapfit};
///
/// let mut primes = Vec::new_in(Heapfit);
/// primes.extend_from_slice(&[2, 3, 5, 7]);
/// assert_eq!(primes.iter().sum::<i32>(), 17);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Heapfit;

// SAFETY: heapfit allocates and frees on any thread and never unwinds. Blocks of the malloc family are
// aligned to MALLOC_ALIGNMENT, which the ways to more are chosen by. Callers promise sizes above 0.
unsafe impl GlobalAlloc for Heapfit {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let object = if is_plain(layout) {
            // SAFETY: no conditions.
            unsafe { sys::hf_malloc(layout.size()) }
        } else {
            // SAFETY: no conditions.
            unsafe { sys::hf_aligned_alloc(layout.align(), layout.size()) }
        };
        object.cast()
    }

    #[inline]
    unsafe fn dealloc(&self, object: *mut u8, layout: Layout) {
        // SAFETY: the caller promises a live block of ours of this layout.
        unsafe { sys::hf_free_sized(object.cast(), layout.size()) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_plain(layout) {
            // SAFETY: no conditions.
            return unsafe { sys::hf_calloc(1, layout.size()) }.cast();
        }
        // SAFETY: the caller's promise.
        let object = unsafe { self.alloc(layout) };
        if !object.is_null() {
            // SAFETY: it has so many bytes.
            unsafe { object.write_bytes(0, layout.size()) };
        }
        object
    }

    #[inline]
    unsafe fn realloc(&self, object: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if is_plain(layout) {
            // SAFETY: the caller promises a live block of ours.
            return unsafe { sys::hf_realloc(object.cast(), new_size) }.cast();
        }
        // SAFETY: the caller promises a size that makes a layout with this alignment, and the block.
        unsafe {
            let new = Layout::from_size_align_unchecked(new_size, layout.align());
            move_aligned(object, layout, new)
        }
    }
}

/// Whether any block of so many bytes is aligned well enough.
#[inline]
fn is_plain(layout: Layout) -> bool {
    layout.align() <= sys::MALLOC_ALIGNMENT
}

/// # Safety
///
/// `object` is a live block of the layout `old`, and neither layout is one of no bytes.
#[cold]
unsafe fn move_aligned(object: *mut u8, old: Layout, new: Layout) -> *mut u8 {
    // SAFETY: the caller's promise.
    let moved = unsafe { Heapfit.alloc(new) };
    if !moved.is_null() {
        // SAFETY: two live blocks, which do not overlap; the first is not used again.
        unsafe {
            ptr::copy_nonoverlapping(object, moved, old.size().min(new.size()));
            Heapfit.dealloc(object, old);
        }
    }
    moved
}

// SAFETY: all values of the type are one heap, which lives as long as the process; the rest as above.
unsafe impl Allocator for Heapfit {
    #[inline]
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let start = match layout.size() {
            0 => block::dangling(layout),
            // SAFETY: the size is not 0.
            _ => block::from_c(unsafe { self.alloc(layout) }.cast::<c_void>())?,
        };
        Ok(block::slice(start, layout.size()))
    }

    #[inline]
    fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let start = match layout.size() {
            0 => block::dangling(layout),
            // SAFETY: the size is not 0.
            _ => block::from_c(unsafe { self.alloc_zeroed(layout) }.cast::<c_void>())?,
        };
        Ok(block::slice(start, layout.size()))
    }

    #[inline]
    unsafe fn deallocate(&self, start: NonNull<u8>, layout: Layout) {
        if layout.size() != 0 {
            // SAFETY: the caller promises a live block of ours of this layout.
            unsafe { self.dealloc(start.as_ptr(), layout) };
        }
    }

    #[inline]
    unsafe fn grow(
        &self,
        start: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's promise.
        unsafe { resize(start, old, new) }
    }

    #[inline]
    unsafe fn grow_zeroed(
        &self,
        start: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's promise; the block has grown.
        unsafe {
            let grown = resize(start, old, new)?;
            block::zero_tail(grown.cast(), old, new);
            Ok(grown)
        }
    }

    #[inline]
    unsafe fn shrink(
        &self,
        start: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's promise.
        unsafe { resize(start, old, new) }
    }
}

/// Make a block of the layout `old` one of `new`, larger or smaller.
///
/// # Safety
///
/// `start` is a live block of the layout `old`.
#[inline]
unsafe fn resize(
    start: NonNull<u8>,
    old: Layout,
    new: Layout,
) -> Result<NonNull<[u8]>, AllocError> {
    if old.size() == 0 {
        return Heapfit.allocate(new);
    }
    if new.size() == 0 {
        // SAFETY: the caller's promise.
        unsafe { Heapfit.deallocate(start, old) };
        return Ok(block::slice(block::dangling(new), 0));
    }
    // SAFETY: the caller's promise, and neither size is 0. hf_realloc takes any block of ours, whatever
    // it is aligned to, and returns one that is aligned plainly.
    let moved = unsafe {
        if is_plain(new) {
            sys::hf_realloc(start.as_ptr().cast(), new.size())
        } else {
            move_aligned(start.as_ptr(), old, new).cast()
        }
    };
    Ok(block::slice(block::from_c(moved)?, new.size()))
}
