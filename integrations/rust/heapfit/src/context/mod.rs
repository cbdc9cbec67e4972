//! Contexts: owned heaps for objects that die together.
//!
//! This file is a context's life; `builder.rs` how it is made, `allocator.rs` how containers live in
//! it, `stats.rs` what it holds.

mod allocator;
mod builder;
mod stats;

use std::cell::Cell;
use std::error::Error;
use std::fmt;
use std::mem;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::{self, NonNull};

use heapfit_sys as sys;

use crate::thread;
pub use builder::{Builder, CreateError};
pub use stats::Stats;

/// What a context does with an object that is freed before all are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Kind {
    /// It is reused at once, last in, first out; nothing is ever merged, sorted or counted, since
    /// [`Context::free_all`] makes good for it. (Inoue, Komatsu, Nakatani: A Study of Memory Management
    /// for Web-based Applications on Multicore Processors, PLDI 2009.)
    #[default]
    DefragDodging,
    /// Nothing: a pointer is bumped, and memory comes back with [`Context::free_all`] alone. For
    /// transactions that free little before they end. The newest object can still grow and shrink
    /// where it is, so that filling one `Vec` at a time costs no copies.
    Region,
}

/// A heap for objects that die together, such as those of one request: [`free_all`](Self::free_all)
/// gives all of them back at once, at a cost that does not depend on their number.
///
/// Containers live in a context by a reference to it, which is an
/// [`Allocator`](crate::allocator_api2::alloc::Allocator):
///
/// ```
/// use heapfit::{allocator_api2::{boxed::Box, vec::Vec}, Context};
///
/// let mut context = Context::new()?;
/// for request in 0..3 {
///     let mut words = Vec::new_in(&context);
///     words.push(Box::new_in(request, &context));
///     words.push(Box::new_in(request * 2, &context));
///     assert_eq!(*words[1], request * 2);
///
///     std::mem::forget(words); // no need to free one by one
///     context.free_all();
/// }
/// assert_eq!(context.stats().live_bytes, 0);
/// # Ok::<(), heapfit::CreateError>(())
/// ```
///
/// # What the compiler sees to
///
/// No object outlives the memory that it lies in: [`free_all`](Self::free_all) needs the context for
/// itself, and dropping it too, so neither is possible while a container may be used again.
///
/// ```compile_fail,E0502
/// # use heapfit::{allocator_api2::vec::Vec, Context};
/// let mut context = Context::new().unwrap();
/// let mut words = Vec::new_in(&context);
/// words.push("alive");
/// context.free_all(); // error: cannot borrow `context` as mutable
/// println!("{}", words[0]);
/// ```
///
/// ```compile_fail,E0505
/// # use heapfit::{allocator_api2::boxed::Box, Context};
/// let context = Context::new().unwrap();
/// let word = Box::leak(Box::new_in(1, &context));
/// drop(context); // error: cannot move out of `context` because it is borrowed
/// println!("{word}");
/// ```
///
/// Destructors of objects that were forgotten or leaked do not run when their memory goes.
///
/// # Threads
///
/// A context takes no locks, so one thread at a time has it. It is [`Send`]: move it, or lend it
/// mutably, to another thread, which is its owner from its first use there on.
///
/// ```
/// # use heapfit::{allocator_api2::vec::Vec, Context};
/// let mut context = Context::new()?;
/// std::thread::scope(|scope| {
///     scope.spawn(|| {
///         let context = &mut context;
///         let mut squares = Vec::new_in(&*context);
///         squares.extend((0..10).map(|i| i * i));
///         assert_eq!(squares[9], 81);
///     });
/// });
/// context.free_all(); // here again
/// # Ok::<(), heapfit::CreateError>(())
/// ```
///
/// It is not [`Sync`]: no reference to it, and no container in it, reaches another thread. Slices of a
/// container, and references to what is in it, do, as those of all containers.
///
/// ```compile_fail,E0277
/// # use heapfit::Context;
/// let context = Context::new().unwrap();
/// std::thread::scope(|scope| {
///     scope.spawn(|| context.stats()); // error: `Context` cannot be shared between threads
/// });
/// ```
///
/// ```compile_fail,E0277
/// # use heapfit::{allocator_api2::boxed::Box, Context};
/// let context = Context::new().unwrap();
/// let word = Box::new_in(1, &context);
/// std::thread::scope(|scope| {
///     scope.spawn(move || drop(word)); // error: `&Context` cannot be sent between threads
/// });
/// ```
///
/// # What is left out
///
/// heapfit's C interface can *switch* a thread, so that its plain `malloc` takes from a context. There is no
/// guard for that here. While a thread is switched, every plain `String` or `Vec` that it makes lies in the
/// context, also those that a library makes to keep: the buffer of standard output, a thread-local, the
/// payload of a panic, the value that a closure returns. None of them borrows the context, so the compiler
/// could not tell that `free_all` and `drop` end them. Name the context where a container is made instead.
pub struct Context {
    raw: NonNull<sys::hf_context>,
    kind: Kind,
    /// What all objects are aligned to.
    alignment: usize,
    /// The number of the thread that the allocator knows as the owner.
    owner: Cell<u64>,
    /// The object allocated last; null: none. Regions: see `allocator.rs`.
    newest: Cell<*mut u8>,
}

// SAFETY: the allocator ties a context to a thread by `owner` alone, which the first use on another
// thread changes (`own`). What is sent is either the context itself, which nothing borrows then and in
// which no object can be reached any more; or a `&mut Context`, likewise. So the former owner frees no
// object of it until it has the context back, and whatever sends a value synchronises the two threads.
unsafe impl Send for Context {}

// None of its methods runs code that could panic halfway: a request that panics leaves its context whole.
impl UnwindSafe for Context {}
impl RefUnwindSafe for Context {}

impl Context {
    /// A context of the kind [`DefragDodging`](Kind::DefragDodging), with defaults.
    ///
    /// # Errors
    ///
    /// [`CreateError::OutOfMemory`].
    pub fn new() -> Result<Self, CreateError> {
        Self::builder().build()
    }

    /// A context of the kind [`Region`](Kind::Region), with defaults.
    ///
    /// ```
    /// use heapfit::{allocator_api2::vec::Vec, Context};
    ///
    /// let context = Context::region()?;
    /// let mut lines = Vec::new_in(&context);
    /// lines.extend(["one", "two"]);
    /// assert_eq!(lines.len(), 2);
    /// # Ok::<(), heapfit::CreateError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`CreateError::OutOfMemory`].
    pub fn region() -> Result<Self, CreateError> {
        Self::builder().kind(Kind::Region).build()
    }

    /// All that can be chosen when a context is made.
    ///
    /// ```
    /// use heapfit::Context;
    ///
    /// let context = Context::builder().limit(64 << 20).build()?;
    /// # Ok::<(), heapfit::CreateError>(())
    /// ```
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Take charge of what `hf_context_create` has just returned on this thread.
    fn from_raw(raw: NonNull<sys::hf_context>, kind: Kind, alignment: usize) -> Self {
        Context {
            raw,
            kind,
            alignment,
            owner: Cell::new(thread::number()),
            newest: Cell::new(ptr::null_mut()),
        }
    }

    /// The context for C's functions, with the calling thread as its owner.
    #[inline]
    fn own(&self) -> *mut sys::hf_context {
        let thread = thread::number();
        if self.owner.get() != thread {
            self.change_owner(thread);
        }
        self.raw.as_ptr()
    }

    #[cold]
    fn change_owner(&self, thread: u64) {
        // SAFETY: whoever owned the context has sent it here, and so no longer uses it (see `Send`).
        unsafe { sys::hf_context_enter(self.raw.as_ptr()) };
        self.owner.set(thread);
    }

    /// The kind that the context was made with.
    ///
    /// ```
    /// use heapfit::{Context, Kind};
    ///
    /// assert_eq!(Context::new()?.kind(), Kind::DefragDodging);
    /// # Ok::<(), heapfit::CreateError>(())
    /// ```
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Free all objects of the context. It is then as if newly made, with the memory that it needs at
    /// hand.
    ///
    /// ```
    /// use heapfit::{allocator_api2::boxed::Box, Context};
    ///
    /// let mut context = Context::new()?;
    /// for _ in 0..1000 {
    ///     Box::leak(Box::new_in([0_u64; 8], &context));
    /// }
    /// context.free_all();
    /// assert_eq!(context.stats().used_bytes, 0);
    /// # Ok::<(), heapfit::CreateError>(())
    /// ```
    pub fn free_all(&mut self) {
        // SAFETY: this thread owns it, and no reference into it is left: each would borrow `self`.
        unsafe { sys::hf_context_free_all(self.own()) };
        self.newest.set(ptr::null_mut());
    }

    /// Bytes of address space that the context may have from now on, in whole chunks; 0: no limit.
    /// Containers that need more then fail to grow: `try_reserve` says so, `push` ends the program.
    ///
    /// ```
    /// use heapfit::{allocator_api2::vec::Vec, Context};
    ///
    /// let context = Context::new()?;
    /// context.set_limit(4 << 20).unwrap();
    /// let mut bytes: Vec<u8, _> = Vec::new_in(&context);
    /// assert!(bytes.try_reserve(8 << 20).is_err());
    /// assert!(bytes.try_reserve(1 << 20).is_ok());
    /// # Ok::<(), heapfit::CreateError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The context has more already; nothing is changed.
    pub fn set_limit(&self, bytes: usize) -> Result<(), LimitError> {
        // SAFETY: this thread owns it.
        match unsafe { sys::hf_context_set_limit(self.own(), bytes) } {
            0 => Ok(()),
            _ => Err(LimitError(())),
        }
    }

    /// Whether an object lies in memory of the context. One of no bytes lies nowhere.
    ///
    /// ```
    /// use heapfit::{allocator_api2::boxed::Box, Context};
    ///
    /// let context = Context::new()?;
    /// let inside = Box::new_in(1, &context);
    /// let outside = 1;
    /// assert!(context.owns(&*inside));
    /// assert!(!context.owns(&outside));
    /// # Ok::<(), heapfit::CreateError>(())
    /// ```
    pub fn owns<T: ?Sized>(&self, object: &T) -> bool {
        // A reference, not any pointer: while it lives, its memory changes hands in no other thread, which
        // the look-up takes no lock against. That says nothing of where an object of no bytes stands.
        let start: *const T = object;
        // SAFETY: only looks the address up.
        mem::size_of_val(object) != 0
            && unsafe { sys::hf_context_owns(self.raw.as_ptr(), start.cast()) != 0 }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: this thread owns it, no thread is switched to it, and no reference into it is left.
        unsafe { sys::hf_context_destroy(self.own()) };
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Context")
            .field("kind", &self.kind)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

/// The context has more address space already than the limit would allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitError(());

impl fmt::Display for LimitError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the context has more address space than the limit")
    }
}

impl Error for LimitError {}

#[cfg(test)]
mod tests {
    use super::Context;

    /// Two traits for a type that is `Sync`, one for any other: only with one is `for_one` a name.
    trait AmbiguousIfSync<Which> {
        fn for_one() {}
    }
    impl<T: ?Sized> AmbiguousIfSync<()> for T {}
    impl<T: ?Sized + Sync> AmbiguousIfSync<u8> for T {}

    #[test]
    fn a_context_can_be_sent_and_not_shared() {
        fn is_send<T: Send>() {}
        is_send::<Context>();
        <Context as AmbiguousIfSync<_>>::for_one(); // does not compile if it is Sync
    }
}
