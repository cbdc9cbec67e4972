//! Random calls, each followed by checks that every block still holds what was written to it.

mod common;

use common::{Model, Random};
use heapfit::{Context, Heapfit, Kind};

const ROUNDS: usize = 15;
const STEPS: usize = 1_500;

fn rounds(mut context: Context) {
    let mut random = Random::new();
    for round in 0..ROUNDS {
        let mut model = Model::new(&context);
        for _ in 0..STEPS {
            model.step(&mut random);
        }
        assert!(context.stats().live_bytes >= model.live_bytes());
        let free = round % 2 == 0;
        model.finish(free);
        if free && context.kind() == Kind::DefragDodging {
            assert_eq!(context.stats().live_bytes, 0);
        }
        context.free_all();
        assert_eq!(context.stats().used_bytes, 0);
    }
    assert_eq!(context.stats().free_alls, ROUNDS);
}

#[test]
fn blocks_of_a_context_stay_what_they_are() {
    rounds(Context::new().unwrap());
}

#[test]
fn blocks_of_a_region_stay_what_they_are() {
    rounds(Context::region().unwrap());
}

#[test]
fn blocks_of_contexts_that_align_to_8_stay_what_they_are() {
    rounds(Context::builder().alignment(8).build().unwrap());
    rounds(
        Context::builder()
            .kind(Kind::Region)
            .alignment(8)
            .build()
            .unwrap(),
    );
}

#[test]
fn blocks_of_a_context_of_other_sizes_stay_what_they_are() {
    let builder = Context::builder()
        .chunk_size(1 << 20)
        .segment_size(16 << 10);
    rounds(builder.sizes(&[16, 48, 256, 1024, 4096]).build().unwrap());
}

#[test]
fn blocks_of_the_heap_stay_what_they_are() {
    let mut random = Random::new();
    for round in 0..ROUNDS {
        let mut model = Model::new(Heapfit);
        for _ in 0..STEPS {
            model.step(&mut random);
        }
        model.finish(true);
        if round % 5 == 4 {
            heapfit::trim();
        }
    }
}
