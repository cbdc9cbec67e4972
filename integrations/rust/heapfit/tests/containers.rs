//! Containers that live in contexts of both kinds.

use std::alloc::Layout;
use std::collections::hash_map::RandomState;
use std::mem;
use std::panic;

use hashbrown::HashMap;
use heapfit::allocator_api2::alloc::Allocator;
use heapfit::allocator_api2::boxed::Box;
use heapfit::allocator_api2::vec::Vec;
use heapfit::{Context, CreateError, Kind};

fn both_kinds() -> [Context; 2] {
    [Context::new().unwrap(), Context::region().unwrap()]
}

#[test]
fn a_vec_grows_and_shrinks_in_a_context() {
    for context in both_kinds() {
        let mut numbers = Vec::new_in(&context);
        numbers.extend(0..100_000_u64);
        assert!(context.owns(&numbers[..]));
        numbers.truncate(10);
        numbers.shrink_to_fit();
        assert!(numbers.iter().copied().eq(0..10));
        numbers.clear();
        numbers.shrink_to_fit();
        numbers.push(1);
        assert_eq!(numbers[..], [1]);
    }
}

#[test]
fn a_map_of_vecs_and_boxes_lives_in_a_context() {
    for mut context in both_kinds() {
        for _request in 0..3 {
            let mut map = HashMap::with_hasher_in(RandomState::new(), &context);
            for i in 0..5_000_u32 {
                let list = map.entry(i % 100).or_insert_with(|| Vec::new_in(&context));
                list.push(Box::new_in(i, &context));
            }
            let copy = map.clone();
            map.retain(|key, _| key % 2 == 0);
            assert_eq!((map.len(), copy.len()), (50, 100));
            assert!(copy
                .iter()
                .all(|(key, list)| list.iter().all(|i| **i % 100 == *key)));
            assert!(copy.values().all(|list| context.owns(&*list[0])));
            drop(map);
            mem::forget(copy); // free_all makes good for it
            context.free_all();
            assert_eq!(context.stats().live_bytes, 0);
        }
    }
}

#[test]
fn objects_of_no_bytes_need_no_memory() {
    for context in both_kinds() {
        let nothing = Box::new_in((), &context);
        let mut nothings: Vec<[u64; 0], _> = Vec::new_in(&context);
        nothings.extend([[]; 1000]);
        assert_eq!((*nothing, nothings.len()), ((), 1000));
        let overaligned = (&context)
            .allocate(Layout::from_size_align(0, 4096).unwrap())
            .unwrap();
        assert_eq!(overaligned.cast::<u8>().as_ptr() as usize % 4096, 0);
        assert_eq!(context.stats().live_bytes, 0);
    }
}

#[test]
fn over_aligned_objects_are_aligned() {
    #[repr(align(64))]
    struct Line(u8);
    #[repr(align(4096))]
    struct Page(u8);

    for context in both_kinds() {
        let lines: std::vec::Vec<_> = (0..10).map(|i| Box::new_in(Line(i), &context)).collect();
        assert!(lines
            .iter()
            .all(|line| &**line as *const Line as usize % 64 == 0));
        let mut pages = Vec::new_in(&context);
        for i in 0..20 {
            pages.push(Page(i)); // moves from time to time
            assert_eq!(pages.as_ptr() as usize % 4096, 0);
        }
        assert!(pages.iter().map(|page| page.0).eq(0..20));
        assert!(lines.iter().map(|line| line.0).eq(0..10));
    }
}

#[test]
fn the_newest_object_of_a_region_grows_where_it_is() {
    let context = Context::region().unwrap();
    let mut numbers = Vec::with_capacity_in(1, &context);
    let start: *const u32 = numbers.as_ptr();
    numbers.extend(0..100_000);
    assert_eq!(numbers.as_ptr(), start);
    let newer = Box::new_in(1, &context);
    numbers.reserve(1_000_000);
    assert_ne!(numbers.as_ptr(), start);
    assert!(numbers.iter().copied().eq(0..100_000));
    assert_eq!(*newer, 1);
}

#[test]
fn an_older_object_of_a_region_shrinks_where_it_is() {
    let context = Context::region().unwrap();
    let mut numbers = Vec::new_in(&context);
    numbers.extend(0..1000);
    let _newer = Box::new_in(1, &context);
    let (start, used) = (numbers.as_ptr(), context.stats().used_bytes);
    numbers.truncate(3);
    numbers.shrink_to_fit();
    assert_eq!(
        (numbers.as_ptr(), context.stats().used_bytes),
        (start, used)
    );
    assert_eq!(numbers[..], [0, 1, 2]);
}

#[test]
fn what_is_freed_is_used_again_in_one_kind_only() {
    for context in both_kinds() {
        let place_of = |object: Box<u64, _>| &*object as *const u64;
        let first = place_of(Box::new_in(1, &context));
        let second = place_of(Box::new_in(2, &context));
        assert_eq!(first == second, context.kind() == Kind::DefragDodging);
    }
}

#[test]
fn a_limit_is_an_error_that_the_program_can_handle() {
    for kind in [Kind::DefragDodging, Kind::Region] {
        let builder = Context::builder().kind(kind).chunk_size(1 << 20);
        let mut context = builder.limit(4 << 20).build().unwrap();
        let mut bytes: Vec<u8, _> = Vec::new_in(&context);
        assert!(bytes.try_reserve_exact(5 << 20).is_err());
        bytes.extend_from_slice(&[7; 1000]);
        assert!(bytes.try_reserve_exact(5 << 20).is_err());
        assert_eq!(bytes[..], [7; 1000]);
        assert!(context.set_limit(1).is_err());
        assert!(context.set_limit(64 << 20).is_ok());
        bytes.try_reserve_exact(5 << 20).unwrap();
        assert_eq!(bytes[..], [7; 1000]);
        drop(bytes);
        context.free_all();
        assert!(context.stats().footprint <= 4 << 20);
    }
}

#[test]
fn layouts_that_cannot_exist_are_refused() {
    for context in both_kinds() {
        for (size, align) in [
            (isize::MAX as usize, 1),
            (1 << 62, 16),
            (1, 1 << 62),
            (1, 1 << 48),
        ] {
            let layout = Layout::from_size_align(size, align).unwrap();
            assert!((&context).allocate(layout).is_err(), "{layout:?}");
            assert!((&context).allocate_zeroed(layout).is_err(), "{layout:?}");
        }
        assert_eq!(*Box::new_in(1, &context), 1);
    }
}

#[test]
fn a_configuration_that_breaks_a_rule_is_refused() {
    let broken = [
        Context::builder().alignment(32),
        Context::builder().chunk_size(1000),
        Context::builder().segment_size(3000),
        Context::builder().sizes(&[64, 32]),
        Context::builder().sizes(&[7]),
    ];
    for builder in broken {
        assert_eq!(
            builder.build().unwrap_err(),
            CreateError::InvalidConfiguration,
            "{builder:?}"
        );
    }
}

#[test]
fn a_request_that_panics_leaves_its_context_whole() {
    for mut context in both_kinds() {
        for round in 0..3 {
            let caught = panic::catch_unwind(|| {
                let mut held = Vec::new_in(&context);
                held.extend(0..1000);
                assert!(held.len() < 1000, "round {round}");
            });
            let payload = caught.unwrap_err().downcast::<String>().unwrap();
            assert_eq!(*payload, format!("round {round}"));
            context.free_all();
            assert_eq!(context.stats().live_bytes, 0);
        }
    }
}

#[test]
fn a_context_knows_what_it_owns() {
    let (context, other) = (Context::new().unwrap(), Context::new().unwrap());
    let mut numbers = Vec::new_in(&context);
    numbers.extend(0..10);
    assert!(context.owns(&numbers[9]) && context.owns(&numbers[..]));
    assert!(!other.owns(&numbers[9]) && !context.owns(&numbers));
    assert!(!context.owns(&numbers[..0]) && !context.owns("static"));
}

#[test]
fn contexts_nest_and_do_not_share_memory() {
    let mut outer = Context::new().unwrap();
    {
        let kept = Box::new_in(1, &outer);
        let mut inner = Context::region().unwrap();
        for i in 0..100 {
            let temporary = Box::new_in(i, &inner);
            assert!(inner.owns(&*temporary) && !outer.owns(&*temporary));
            drop(temporary);
            inner.free_all();
        }
        assert_eq!(*kept, 1);
    }
    outer.free_all();
}

#[test]
fn memory_is_kept_for_the_next_transaction_as_configured() {
    let needed = 32 << 20;
    let footprint_after = |retain| {
        let mut context = Context::builder().retain(retain).build().unwrap();
        for _ in 0..1000 {
            Box::leak(Box::new_in([0_u8; 16_000], &context));
        }
        let footprint = context.stats().footprint;
        context.free_all();
        (footprint, context.stats().footprint)
    };
    let (before, after) = footprint_after(needed);
    assert_eq!(before, after);
    let (before, after) = footprint_after(1);
    assert!(after < before);
}

#[test]
fn a_context_says_what_it_is() {
    let context = Context::region().unwrap();
    let text = format!("{context:?}");
    assert!(
        text.starts_with("Context { kind: Region, stats: Stats { live_bytes: 0"),
        "{text}"
    );
}
