#![doc = include_str!("../README.md")]
#![warn(missing_docs)]
#![deny(unsafe_op_in_unsafe_fn)]

mod block;
mod context;
mod global;
mod process;
mod thread;

/// The crate whose `Allocator` trait, `vec::Vec` and `boxed::Box` go with contexts, in the version
/// that does.
pub use allocator_api2;
pub use context::{Builder, Context, CreateError, Kind, LimitError, Stats};
pub use global::Heapfit;
pub use process::{trim, version};
