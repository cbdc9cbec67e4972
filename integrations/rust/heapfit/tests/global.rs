//! heapfit as the global allocator of a whole program: this one.

mod common;

use std::alloc::{alloc_zeroed, dealloc, realloc, Layout};
use std::collections::{BTreeMap, HashMap};
use std::os::raw::c_void;
use std::sync::mpsc;
use std::thread;

use heapfit::Heapfit;

#[global_allocator]
static HEAP: Heapfit = Heapfit;

fn is_ours<T: ?Sized>(object: *const T) -> bool {
    unsafe { heapfit_sys::hf_is_ours(object.cast::<c_void>()) != 0 }
}

#[test]
fn ordinary_containers_live_in_it() {
    let text = "a".repeat(100);
    let numbers: Vec<u64> = (0..100_000).collect();
    let names: HashMap<u32, String> = (0..1000).map(|i| (i, i.to_string())).collect();
    let sorted: BTreeMap<_, _> = names
        .iter()
        .map(|(key, name)| (name.clone(), *key))
        .collect();
    assert!(is_ours(text.as_ptr()) && is_ours(numbers.as_ptr()) && is_ours(names[&7].as_ptr()));
    assert_eq!(numbers.iter().sum::<u64>(), 4_999_950_000);
    assert_eq!(sorted["999"], 999);
}

#[test]
fn the_c_library_keeps_its_own_malloc() {
    extern "C" {
        fn malloc(size: usize) -> *mut c_void;
        fn free(pointer: *mut c_void);
    }
    let object = unsafe { malloc(100) };
    assert!(!object.is_null() && !is_ours(object));
    unsafe { free(object) };
}

#[test]
fn alignment_is_as_asked_for_and_survives_growing() {
    for shift in 0..=16 {
        let align = 1 << shift;
        let layout = Layout::from_size_align(3 * align, align).unwrap();
        unsafe {
            let object = alloc_zeroed(layout);
            assert_eq!(object as usize % align, 0);
            assert!((0..layout.size()).all(|i| *object.add(i) == 0));
            object.write_bytes(7, layout.size());
            let grown = realloc(object, layout, 5 * align);
            assert_eq!(grown as usize % align, 0);
            assert!((0..layout.size()).all(|i| *grown.add(i) == 7));
            dealloc(grown, Layout::from_size_align(5 * align, align).unwrap());
        }
    }
}

#[test]
fn memory_is_zeroed_where_that_is_asked_for_even_when_it_was_used_before() {
    for size in [1, 100, 5_000, 200_000] {
        drop(vec![0xFF_u8; size]);
        assert!(vec![0_u8; size].iter().all(|&byte| byte == 0));
    }
}

#[test]
fn boxes_are_freed_by_other_threads() {
    const PRODUCERS: usize = 3;
    const BOXES: usize = 20_000;
    let (sender, receiver) = mpsc::channel::<Box<[u8]>>();
    let consumer = thread::spawn(move || {
        let mut right = 0;
        for object in receiver {
            right += usize::from(
                object
                    .iter()
                    .all(|&byte| usize::from(byte) == object.len() % 251),
            );
        }
        right
    });
    thread::scope(|scope| {
        for _ in 0..PRODUCERS {
            let sender = sender.clone();
            scope.spawn(move || {
                for i in 0..BOXES {
                    let size = i % 900;
                    sender
                        .send(vec![(size % 251) as u8; size].into_boxed_slice())
                        .unwrap();
                }
            });
        }
    });
    drop(sender);
    assert_eq!(consumer.join().unwrap(), PRODUCERS * BOXES);
}

#[test]
fn what_cannot_exist_is_an_error_that_the_program_can_handle() {
    let mut bytes: Vec<u8> = Vec::new();
    assert!(bytes.try_reserve_exact(isize::MAX as usize).is_err());
    bytes.push(1);
    assert_eq!(bytes, [1]);
}

#[test]
fn a_panic_is_caught_and_its_memory_freed() {
    let caught = std::panic::catch_unwind(|| {
        let held = vec![1_u8; 1000];
        panic!("with {} bytes", held.len());
    });
    assert_eq!(
        *caught.unwrap_err().downcast::<String>().unwrap(),
        "with 1000 bytes"
    );
}
