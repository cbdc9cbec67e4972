//! Contexts that change hands.

use std::sync::mpsc;
use std::thread;

use heapfit::allocator_api2::boxed::Box;
use heapfit::allocator_api2::vec::Vec;
use heapfit::{Context, Kind};

fn transaction(context: &Context, base: u64) {
    let mut boxes = Vec::new_in(context);
    for i in 0..1000 {
        boxes.push(Box::new_in(base + i, context));
    }
    assert!(boxes.iter().map(|object| **object).eq(base..base + 1000));
    boxes.truncate(500);
}

fn contexts() -> impl Iterator<Item = Context> {
    [Kind::DefragDodging, Kind::Region]
        .into_iter()
        .map(|kind| Context::builder().kind(kind).build().unwrap())
}

#[test]
fn a_context_moves_through_threads_that_end() {
    for mut context in contexts() {
        for thread_number in 0..20 {
            context = thread::spawn(move || {
                transaction(&context, thread_number);
                context.free_all();
                transaction(&context, 0); // remains for the next thread to free
                context
            })
            .join()
            .unwrap();
        }
        assert_eq!(context.stats().free_alls, 20);
        context.free_all();
        assert_eq!(context.stats().used_bytes, 0);
    }
}

#[test]
fn a_pool_of_contexts_serves_many_threads() {
    const THREADS: u64 = 4;
    const TRANSACTIONS: u64 = 100;
    let (give_back, pool) = mpsc::channel();
    for context in contexts() {
        give_back.send(context).unwrap();
    }
    let pool = std::sync::Mutex::new(pool);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (pool, give_back) = (&pool, give_back.clone());
            scope.spawn(move || {
                for i in 0..TRANSACTIONS {
                    let mut context: Context = pool.lock().unwrap().recv().unwrap();
                    transaction(&context, thread * i);
                    context.free_all();
                    give_back.send(context).unwrap();
                }
            });
        }
    });
    drop(give_back);
    let pool = pool.into_inner().unwrap();
    let served: usize = pool.iter().map(|context| context.stats().free_alls).sum();
    assert_eq!(served as u64, THREADS * TRANSACTIONS);
}

#[test]
fn a_context_is_lent_to_a_thread_and_comes_back() {
    for mut context in contexts() {
        for _ in 0..10 {
            transaction(&context, 1);
            thread::scope(|scope| {
                let lent = &mut context;
                scope.spawn(move || {
                    transaction(lent, 2);
                    lent.free_all();
                    transaction(lent, 3);
                });
            });
            transaction(&context, 4);
        }
        assert_eq!(context.stats().free_alls, 10);
    }
}

#[test]
fn a_context_is_dropped_by_another_thread() {
    for context in contexts() {
        transaction(&context, 1);
        thread::spawn(move || drop(context)).join().unwrap();
    }
}

#[test]
fn a_slice_is_lent_to_a_thread_while_its_context_goes_on() {
    for context in contexts() {
        let mut numbers = Vec::new_in(&context);
        numbers.resize(10_000, 0_u64);
        let mut others = Vec::new_in(&context);
        others.push(1_u64);
        thread::scope(|scope| {
            let lent = &mut numbers[..];
            scope.spawn(move || lent.iter_mut().zip(0..).for_each(|(place, i)| *place = i));
            transaction(&context, 1);
            for i in 2..=5_000 {
                others.push(i); // grows beside the slice that is being written
            }
        });
        assert!(numbers.iter().copied().eq(0..10_000));
        assert!(others.iter().copied().eq(1..=5_000));
    }
}

#[test]
fn a_context_is_used_and_dropped_while_its_thread_exits() {
    thread_local! {
        static KEPT: Context = Context::new().unwrap();
    }
    thread::spawn(|| KEPT.with(|context| transaction(context, 1)))
        .join()
        .unwrap();
}
