// dlmalloc for malloc_family.c, from the crate of that name: a port of Doug Lea's allocator. The
// caller holds the lock.

#![no_std]

use core::cell::UnsafeCell;
use core::mem::size_of;
use core::panic::PanicInfo;

use dlmalloc::Dlmalloc;

struct Heap(UnsafeCell<Dlmalloc>);

// The lock of malloc_family.c is held around every use.
unsafe impl Sync for Heap {}

static HEAP: Heap = Heap(UnsafeCell::new(Dlmalloc::new()));

unsafe fn heap() -> &'static mut Dlmalloc {
    &mut *HEAP.0.get()
}

#[no_mangle]
unsafe extern "C" fn rust_allocate(size: usize, alignment: usize) -> *mut u8 {
    heap().c_memalign(alignment, size)
}

#[no_mangle]
unsafe extern "C" fn rust_resize(block: *mut u8, size: usize) -> *mut u8 {
    heap().c_realloc(block, size)
}

#[no_mangle]
unsafe extern "C" fn rust_release(block: *mut u8) {
    heap().c_free(block)
}

/// The crate does not tell. As in dlmalloc since its beginnings, the word before a block is the size
/// of its chunk with flags in the lowest bits, and that word is all that a chunk in use costs. (The
/// port never maps a chunk of its own, which would cost two.)
#[no_mangle]
unsafe extern "C" fn rust_usable_size(block: *mut u8) -> usize {
    const FLAGS: usize = 0b111;
    const OVERHEAD: usize = size_of::<usize>();
    (block.cast::<usize>().sub(1).read() & !FLAGS) - OVERHEAD
}

#[no_mangle]
unsafe extern "C" fn rust_trim(keep: usize) -> bool {
    heap().trim(keep)
}

extern "C" {
    fn abort() -> !;
}

#[panic_handler]
fn panic(_: &PanicInfo) -> ! {
    unsafe { abort() }
}
