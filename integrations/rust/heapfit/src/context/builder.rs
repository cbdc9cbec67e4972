//! How a context is made: `hf_context_config`, a member a method.

use std::error::Error;
use std::fmt;
use std::io;
use std::ptr::{self, NonNull};

use heapfit_sys as sys;

use super::{Context, Kind};

/// What `hf_context_create` leaves in errno when the configuration breaks a rule, on every
/// architecture of Linux.
const EINVAL: i32 = 22;

/// How a context is made. What is not set has its default.
///
/// ```
/// use heapfit::{Context, Kind};
///
/// let context = Context::builder()
///     .kind(Kind::DefragDodging)
///     .chunk_size(4 << 20)
///     .segment_size(64 << 10)
///     .limit(256 << 20)
///     .build()?;
/// assert_eq!(context.stats().free_alls, 0);
/// # Ok::<(), heapfit::CreateError>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a builder makes a context when `build` is called"]
pub struct Builder {
    kind: Kind,
    huge_pages: bool,
    alignment: usize,
    chunk_size: usize,
    segment_size: usize,
    sizes: Option<Vec<u32>>,
    limit: usize,
    retain: usize,
}

impl Builder {
    /// What freeing one object does; [`Kind::DefragDodging`] by default.
    pub fn kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    /// Ask the kernel for huge pages. A context then has at least 2 MiB resident.
    pub fn huge_pages(mut self, yes: bool) -> Self {
        self.huge_pages = yes;
        self
    }

    /// What objects are aligned to: 16 or 8, by default 16. With 8, sizes are rounded up less. Types that
    /// need more get it in either case.
    pub fn alignment(mut self, bytes: usize) -> Self {
        self.alignment = bytes;
        self
    }

    /// How much address space is taken at a time, a multiple of 64 KiB; by default 2 MiB, for a region
    /// 16 MiB. Untouched pages of it cost nothing.
    pub fn chunk_size(mut self, bytes: usize) -> Self {
        self.chunk_size = bytes;
        self
    }

    /// How much is taken at a time for objects of one size: a power of two from 8 KiB on, at least a
    /// sixty-fourth of a chunk; by default 32 KiB. Objects above half of it have segments of their own.
    /// Not for regions.
    pub fn segment_size(mut self, bytes: usize) -> Self {
        self.segment_size = bytes;
        self
    }

    /// The sizes that objects are rounded up to, in ascending order: multiples of 8, at most 120 of them,
    /// up to half a segment (the largest is added when it is missing). By default every 8 bytes to 128,
    /// every 32 to 512, and powers of two. With an alignment of 16, those that are no multiple of 16 are
    /// left out. Not for regions.
    pub fn sizes(mut self, sizes: &[u32]) -> Self {
        self.sizes = Some(sizes.to_vec());
        self
    }

    /// Bytes of address space that the context may have; see [`Context::set_limit`]. 0, the default: no
    /// limit.
    pub fn limit(mut self, bytes: usize) -> Self {
        self.limit = bytes;
        self
    }

    /// Bytes of address space that [`Context::free_all`] keeps for the next transaction. 0, the default:
    /// what recent ones needed. `usize::MAX`: all. One chunk is always kept.
    pub fn retain(mut self, bytes: usize) -> Self {
        self.retain = bytes;
        self
    }

    /// Make the context.
    ///
    /// ```
    /// use heapfit::{Context, CreateError};
    ///
    /// let uneven = Context::builder().chunk_size(1000).build();
    /// assert_eq!(uneven.unwrap_err(), CreateError::InvalidConfiguration);
    /// ```
    ///
    /// # Errors
    ///
    /// [`CreateError::InvalidConfiguration`] when one of the rules of the methods above is broken,
    /// [`CreateError::OutOfMemory`].
    pub fn build(&self) -> Result<Context, CreateError> {
        let config = self.config();
        // SAFETY: the configuration's sizes outlive the call, which copies them.
        let raw = unsafe { sys::hf_context_create(&config) };
        match NonNull::new(raw) {
            Some(raw) => Ok(Context::from_raw(raw, self.kind, self.alignment_in_force())),
            None => Err(CreateError::from_errno()),
        }
    }

    fn config(&self) -> sys::hf_context_config {
        let (sizes, sizes_count) = match &self.sizes {
            Some(sizes) => (sizes.as_ptr(), sizes.len()),
            None => (ptr::null(), 0),
        };
        sys::hf_context_config {
            kind: match self.kind {
                Kind::DefragDodging => sys::HF_DEFRAG_DODGING,
                Kind::Region => sys::HF_REGION,
            },
            huge_pages: self.huge_pages.into(),
            alignment: self.alignment,
            chunk_size: self.chunk_size,
            segment_size: self.segment_size,
            sizes,
            sizes_count,
            limit: self.limit,
            retain: self.retain,
        }
    }

    fn alignment_in_force(&self) -> usize {
        match self.alignment {
            0 => sys::MALLOC_ALIGNMENT,
            chosen => chosen,
        }
    }
}

/// Why there is no context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CreateError {
    /// A value breaks a rule, or two do not go together.
    InvalidConfiguration,
    /// There is no memory for it.
    OutOfMemory,
}

impl CreateError {
    fn from_errno() -> Self {
        match io::Error::last_os_error().raw_os_error() {
            Some(EINVAL) => CreateError::InvalidConfiguration,
            _ => CreateError::OutOfMemory,
        }
    }
}

impl fmt::Display for CreateError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            CreateError::InvalidConfiguration => "the context's configuration breaks a rule",
            CreateError::OutOfMemory => "no memory for a context",
        })
    }
}

impl Error for CreateError {}
