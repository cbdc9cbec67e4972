// TLSF for malloc_family.c, from the crate rlsf: two-level segregated fit, in constant time. The
// caller holds the lock.
//
// TLSF manages one pool that is handed to it. Here that is a reserved range of addresses, of which
// more is made usable as it is needed. It never gives memory back.

#![no_std]

use core::alloc::Layout;
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_long, c_void};
use core::panic::PanicInfo;
use core::ptr::{null_mut, slice_from_raw_parts_mut, NonNull};

use rlsf::{FlexSource, FlexTlsf, GRANULARITY};

// ----------------------------------------------------------------------- pool

/// Addresses cost nothing until they are used; less is reserved where so much is not allowed.
const LARGEST_RESERVATION: usize = 1 << 40;
const SMALLEST_RESERVATION: usize = 1 << 26;

/// The pool grows by multiples of this, to spare system calls. What the program has not touched of
/// it is address space and not memory.
const GROWTH: usize = 1 << 20;

const PROT_NONE: c_int = 0;
const PROT_READ_WRITE: c_int = 1 | 2;
const MAP_PRIVATE_ANONYMOUS_NORESERVE: c_int = 0x02 | 0x20 | 0x4000;

extern "C" {
    fn mmap(
        start: *mut c_void,
        length: usize,
        protection: c_int,
        flags: c_int,
        file: c_int,
        offset: c_long,
    ) -> *mut c_void;
    fn mprotect(start: *mut c_void, length: usize, protection: c_int) -> c_int;
    fn abort() -> !;
}

struct Pool {
    start: *mut u8,
    reserved: usize,
}

impl Pool {
    fn reserve(&mut self) -> bool {
        let mut length = LARGEST_RESERVATION;
        while length >= SMALLEST_RESERVATION {
            let flags = MAP_PRIVATE_ANONYMOUS_NORESERVE;
            let start = unsafe { mmap(null_mut(), length, PROT_NONE, flags, -1, 0) };
            if start as isize != -1 {
                self.start = start.cast();
                self.reserved = length;
                return true;
            }
            length /= 2;
        }
        false
    }

    /// Make at least the first `wanted` bytes usable, of which `usable` are, and return how many.
    fn grow(&self, usable: usize, wanted: usize) -> Option<usize> {
        let grown = wanted.checked_add(GROWTH - 1)? & !(GROWTH - 1);
        if grown > self.reserved {
            return None;
        }
        let from = self.start.wrapping_add(usable).cast();
        let result = unsafe { mprotect(from, grown - usable, PROT_READ_WRITE) };
        (result == 0).then_some(grown)
    }
}

unsafe impl FlexSource for Pool {
    unsafe fn alloc(&mut self, min_size: usize) -> Option<NonNull<[u8]>> {
        if self.start.is_null() && !self.reserve() {
            return None;
        }
        let usable = self.grow(0, min_size)?;
        NonNull::new(slice_from_raw_parts_mut(self.start, usable))
    }

    unsafe fn realloc_inplace_grow(&mut self, pool: NonNull<[u8]>, wanted: usize) -> Option<usize> {
        self.grow(pool.len(), wanted)
    }

    fn supports_realloc_inplace_grow(&self) -> bool {
        true
    }

    fn is_contiguous_growable(&self) -> bool {
        true
    }

    fn min_align(&self) -> usize {
        GRANULARITY
    }
}

// ----------------------------------------------------------------------- heap

/// As many size classes as a word has bits, in both levels, as in the crate's own global allocator.
const LEVELS: usize = usize::BITS as usize;
type Tlsf = FlexTlsf<Pool, usize, usize, LEVELS, LEVELS>;

struct Heap(UnsafeCell<Tlsf>);

// The lock of malloc_family.c is held around every use.
unsafe impl Sync for Heap {}

static HEAP: Heap = Heap(UnsafeCell::new(Tlsf::new(Pool {
    start: null_mut(),
    reserved: 0,
})));

unsafe fn heap() -> &'static mut Tlsf {
    &mut *HEAP.0.get()
}

fn pointer(block: Option<NonNull<u8>>) -> *mut u8 {
    block.map_or(null_mut(), NonNull::as_ptr)
}

/// The alignment that a block was asked for with, as far as TLSF must know it: a block begins at a
/// multiple of GRANULARITY if and only if its alignment is that much or more, because half as much
/// is what a header takes.
fn alignment_of(block: *mut u8) -> usize {
    if block as usize % GRANULARITY == 0 {
        GRANULARITY
    } else {
        GRANULARITY / 2
    }
}

#[no_mangle]
unsafe extern "C" fn rust_allocate(size: usize, alignment: usize) -> *mut u8 {
    match Layout::from_size_align(size, alignment) {
        Ok(layout) => pointer(heap().allocate(layout)),
        Err(_) => null_mut(),
    }
}

#[no_mangle]
unsafe extern "C" fn rust_resize(block: *mut u8, size: usize) -> *mut u8 {
    match Layout::from_size_align(size, alignment_of(block)) {
        Ok(layout) => pointer(heap().reallocate(NonNull::new_unchecked(block), layout)),
        Err(_) => null_mut(),
    }
}

#[no_mangle]
unsafe extern "C" fn rust_release(block: *mut u8) {
    heap().deallocate(NonNull::new_unchecked(block), alignment_of(block))
}

#[no_mangle]
unsafe extern "C" fn rust_usable_size(block: *mut u8) -> usize {
    Tlsf::allocation_usable_size(NonNull::new_unchecked(block))
}

#[no_mangle]
extern "C" fn rust_trim(_keep: usize) -> bool {
    false
}

#[panic_handler]
fn panic(_: &PanicInfo) -> ! {
    unsafe { abort() }
}
