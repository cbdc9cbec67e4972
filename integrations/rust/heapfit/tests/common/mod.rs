//! What more than one test needs.
#![allow(dead_code)] // each test program uses its part

use std::alloc::Layout;
use std::env;
use std::ptr::NonNull;
use std::time::{SystemTime, UNIX_EPOCH};

use heapfit::allocator_api2::alloc::Allocator;

/// A sequence of random numbers (Marsaglia's xorshift64).
pub struct Random(u64);

impl Random {
    /// From `HEAPFIT_TEST_SEED`, or else the clock. Prints the seed, so that a failure can be repeated.
    pub fn new() -> Self {
        let seed = match env::var("HEAPFIT_TEST_SEED") {
            Ok(text) => text.parse().expect("HEAPFIT_TEST_SEED is a number"),
            Err(_) => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap()
                .as_nanos() as u64,
        };
        println!("HEAPFIT_TEST_SEED={seed}");
        Random(seed | 1) // 0 would stay 0
    }

    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % end
    }

    /// Sizes as programs have them, mostly small, now and then of no bytes or many.
    pub fn layout(&mut self) -> Layout {
        let largest = [1, 16, 64, 300, 2_000, 20_000, 300_000][self.below(7)];
        let alignment = match self.below(8) {
            0 => 1 << self.below(14),
            _ => 1 << self.below(5),
        };
        Layout::from_size_align(self.below(largest), alignment).unwrap()
    }
}

/// A live block, and the byte that all of it was filled with.
struct Block {
    start: NonNull<u8>,
    layout: Layout,
    mark: u8,
}

impl Block {
    fn fill(&mut self, from: usize) {
        let rest = self.layout.size() - from;
        unsafe { self.start.as_ptr().add(from).write_bytes(self.mark, rest) };
    }

    fn bytes(&self) -> &[u8] {
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.layout.size()) }
    }

    fn check(&self, size: usize) {
        let address = self.start.as_ptr() as usize;
        assert_eq!(
            address % self.layout.align(),
            0,
            "{:?} at {address:#x}",
            self.layout
        );
        let intact = self.bytes()[..size].iter().all(|&byte| byte == self.mark);
        assert!(intact, "{:?} at {address:#x} was overwritten", self.layout);
    }
}

/// The blocks of an allocator, which hold what was written to them whatever is done to others.
pub struct Model<A: Allocator> {
    allocator: A,
    blocks: Vec<Block>,
    marks: u8,
}

impl<A: Allocator> Model<A> {
    pub fn new(allocator: A) -> Self {
        Model {
            allocator,
            blocks: Vec::new(),
            marks: 0,
        }
    }

    /// One random call, and the checks that go with it.
    pub fn step(&mut self, random: &mut Random) {
        let some = !self.blocks.is_empty();
        match random.below(10) {
            0..=3 => self.allocate(random),
            4..=5 if some => self.free(random),
            6..=7 if some => self.grow(random),
            8 if some => self.shrink(random),
            _ => self.allocate(random),
        }
    }

    /// The bytes that live objects were asked for with.
    pub fn live_bytes(&self) -> usize {
        self.blocks.iter().map(|block| block.layout.size()).sum()
    }

    /// Check each block, and free it or forget it.
    pub fn finish(mut self, free: bool) {
        while let Some(block) = self.blocks.pop() {
            block.check(block.layout.size());
            if free {
                unsafe { self.allocator.deallocate(block.start, block.layout) };
            }
        }
    }

    fn allocate(&mut self, random: &mut Random) {
        let layout = random.layout();
        let zeroed = random.below(3) == 0;
        let memory = match zeroed {
            true => self.allocator.allocate_zeroed(layout).unwrap(),
            false => self.allocator.allocate(layout).unwrap(),
        };
        assert!(memory.len() >= layout.size());
        self.marks = self.marks.wrapping_add(1);
        let mut block = Block {
            start: memory.cast(),
            layout,
            mark: self.marks,
        };
        assert!(
            !zeroed || block.bytes().iter().all(|&byte| byte == 0),
            "{layout:?} is not zeroed"
        );
        block.fill(0);
        self.blocks.push(block);
    }

    fn take(&mut self, random: &mut Random) -> Block {
        // The newest more often than others: in a region it is special.
        let index = match random.below(3) {
            0 => self.blocks.len() - 1,
            _ => random.below(self.blocks.len()),
        };
        let block = self.blocks.swap_remove(index);
        block.check(block.layout.size());
        block
    }

    fn free(&mut self, random: &mut Random) {
        let block = self.take(random);
        unsafe { self.allocator.deallocate(block.start, block.layout) };
    }

    fn grow(&mut self, random: &mut Random) {
        let mut block = self.take(random);
        let old = block.layout;
        let more = random.layout();
        let new = Layout::from_size_align(old.size() + more.size(), more.align()).unwrap();
        let zeroed = random.below(2) == 0;
        let memory = unsafe {
            match zeroed {
                true => self.allocator.grow_zeroed(block.start, old, new).unwrap(),
                false => self.allocator.grow(block.start, old, new).unwrap(),
            }
        };
        block.start = memory.cast();
        block.layout = new;
        block.check(old.size());
        let tail = &block.bytes()[old.size()..];
        assert!(
            !zeroed || tail.iter().all(|&byte| byte == 0),
            "{old:?} to {new:?} is not zeroed"
        );
        block.fill(old.size());
        self.blocks.push(block);
    }

    fn shrink(&mut self, random: &mut Random) {
        let mut block = self.take(random);
        let size = random.below(block.layout.size() + 1);
        let new = Layout::from_size_align(size, random.layout().align()).unwrap();
        block.start = unsafe {
            self.allocator
                .shrink(block.start, block.layout, new)
                .unwrap()
        }
        .cast();
        block.layout = new;
        block.check(size);
        self.blocks.push(block);
    }
}
