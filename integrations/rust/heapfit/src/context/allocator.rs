//! References to contexts as allocators of containers.

use std::alloc::Layout;
use std::ptr::{self, NonNull};

use allocator_api2::alloc::{AllocError, Allocator};
use heapfit_sys as sys;

use super::{Context, Kind};
use crate::block;

// SAFETY: a block stays where it is until it is freed by itself, or all are, or the context is dropped;
// the last two need the context unborrowed, so they come after all that a reference gave out is out
// of reach. All copies of the reference are one allocator.
unsafe impl Allocator for &Context {
    #[inline]
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        Ok(block::slice(self.obtain(layout)?, layout.size()))
    }

    #[inline]
    fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        Ok(block::slice(self.obtain_zeroed(layout)?, layout.size()))
    }

    #[inline]
    unsafe fn deallocate(&self, start: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { self.release(start, layout) }
    }

    #[inline]
    unsafe fn grow(
        &self,
        start: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's promise.
        let grown = unsafe { self.enlarge(start, old, new)? };
        Ok(block::slice(grown, new.size()))
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
            let grown = self.enlarge(start, old, new)?;
            block::zero_tail(grown, old, new);
            Ok(block::slice(grown, new.size()))
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
        let shrunk = unsafe { self.reduce(start, old, new)? };
        Ok(block::slice(shrunk, new.size()))
    }
}

impl Context {
    #[inline]
    fn obtain(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        if layout.size() == 0 {
            return Ok(block::dangling(layout));
        }
        // SAFETY: this thread owns the context.
        let object = unsafe {
            if self.is_plain(layout) {
                sys::hf_context_malloc(self.own(), layout.size())
            } else {
                sys::hf_context_aligned_alloc(self.own(), layout.align(), layout.size())
            }
        };
        self.remember(block::from_c(object)?)
    }

    #[inline]
    fn obtain_zeroed(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        if layout.size() != 0 && self.is_plain(layout) {
            // SAFETY: this thread owns the context.
            let object = unsafe { sys::hf_context_calloc(self.own(), 1, layout.size()) };
            return self.remember(block::from_c(object)?);
        }
        let object = self.obtain(layout)?;
        // SAFETY: it has so many bytes.
        unsafe { object.as_ptr().write_bytes(0, layout.size()) };
        Ok(object)
    }

    /// # Safety
    ///
    /// `object` is a live block of this context, of the layout `layout`.
    #[inline]
    unsafe fn release(&self, object: NonNull<u8>, layout: Layout) {
        if layout.size() != 0 && self.kind == Kind::DefragDodging {
            // SAFETY: this thread owns the context; the rest is the caller's promise.
            unsafe { sys::hf_context_free(self.own(), object.as_ptr().cast()) };
        }
    }

    /// # Safety
    ///
    /// `object` is a live block of this context, of the layout `old`; `new` is not smaller.
    #[inline]
    unsafe fn enlarge(
        &self,
        object: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<u8>, AllocError> {
        if old.size() == 0 {
            return self.obtain(new);
        }
        // SAFETY: the caller's promise.
        unsafe { self.resize(object, old, new) }
    }

    /// # Safety
    ///
    /// `object` is a live block of this context, of the layout `old`; `new` is not larger.
    #[inline]
    unsafe fn reduce(
        &self,
        object: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<u8>, AllocError> {
        if new.size() == 0 {
            // SAFETY: the caller's promise.
            unsafe { self.release(object, old) };
            return Ok(block::dangling(new));
        }
        if self.stays(object, new) {
            return Ok(object);
        }
        // SAFETY: the caller's promise.
        unsafe { self.resize(object, old, new) }
    }

    /// Whether an object that shrinks is best left as it is. In a region nothing is won by a copy.
    fn stays(&self, object: NonNull<u8>, new: Layout) -> bool {
        self.kind == Kind::Region && !self.is_newest(object) && block::is_aligned(object, new)
    }

    /// # Safety
    ///
    /// `object` is a live block of this context, of the layout `old`; neither layout is of no bytes.
    #[inline]
    unsafe fn resize(
        &self,
        object: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<u8>, AllocError> {
        if !self.is_plain(new) || !self.knows_size(object) {
            // SAFETY: the caller's promise.
            return unsafe { self.move_to(object, old, new) };
        }
        // SAFETY: this thread owns the context, the object is the caller's promise.
        let resized =
            unsafe { sys::hf_context_realloc(self.own(), object.as_ptr().cast(), new.size()) };
        self.remember(block::from_c(resized)?)
    }

    /// # Safety
    ///
    /// As for `resize`.
    #[cold]
    unsafe fn move_to(
        &self,
        object: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<u8>, AllocError> {
        let moved = self.obtain(new)?;
        // SAFETY: two live blocks, which do not overlap; the first is not used again.
        unsafe {
            let bytes = old.size().min(new.size());
            ptr::copy_nonoverlapping(object.as_ptr(), moved.as_ptr(), bytes);
            self.release(object, old);
        }
        Ok(moved)
    }

    /// Whether any object of the context is aligned well enough.
    #[inline]
    fn is_plain(&self, layout: Layout) -> bool {
        layout.align() <= self.alignment
    }

    /// Whether `hf_context_realloc` knows where the object ends. In a region it does of the newest only;
    /// of any other it copies what follows as well, which is an object that another thread may be
    /// writing to (through a slice lent to it), and so not ours to read.
    #[inline]
    fn knows_size(&self, object: NonNull<u8>) -> bool {
        self.kind == Kind::DefragDodging || self.is_newest(object)
    }

    #[inline]
    fn is_newest(&self, object: NonNull<u8>) -> bool {
        self.newest.get() == object.as_ptr()
    }

    #[inline]
    fn remember(&self, object: NonNull<u8>) -> Result<NonNull<u8>, AllocError> {
        self.newest.set(object.as_ptr());
        Ok(object)
    }
}
