//! The heap of the whole process.

use std::ffi::CStr;

use heapfit_sys as sys;

/// The version of the allocator that is compiled in.
///
/// ```
/// assert_eq!(heapfit::version(), "0.1.0");
/// ```
pub fn version() -> &'static str {
    // SAFETY: a constant string with a terminating zero.
    let version = unsafe { CStr::from_ptr(sys::hf_version()) };
    version.to_str().expect("digits and dots")
}

/// Give the kernel all free memory that the calling thread's heap and the shared cache hold, in a
/// process of many threads also the free spans of the others, and return how many bytes that was.
///
/// It costs system calls: for the end of a phase, not for every request. What stays free is given back
/// in time without it.
///
/// ```
/// use heapfit::Heapfit;
///
/// #[global_allocator]
/// static HEAP: Heapfit = Heapfit;
///
/// let index: Vec<String> = (0..100_000).map(|i| i.to_string()).collect();
/// drop(index);
/// heapfit::trim();
/// ```
pub fn trim() -> usize {
    // SAFETY: may be called at any time.
    unsafe { sys::hf_trim() }
}
