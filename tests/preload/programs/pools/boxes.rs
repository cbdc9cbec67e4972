// Boxes, vectors, maps and strings of Rust, which come from malloc by layers of its own; a panic unwinds among them.
use std::collections::{BTreeMap, HashMap};
use std::{panic, thread};

struct List {
    next: Option<Box<List>>,
    number: u64,
}

fn work(seed: u64) -> u64 {
    let (mut list, mut state) = (None, seed + 88172645463325252);
    let (mut names, mut counts) = (BTreeMap::new(), HashMap::new());
    for _ in 0..20000 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        list = Some(Box::new(List { next: list, number: state % 1000 }));
        names.entry(state % 512).or_insert_with(Vec::new).push(format!("name {}", state % 100));
        *counts.entry(state % 64).or_insert(0u64) += 1;
    }
    let mut sum = counts.values().map(|count| count * count).sum::<u64>();
    while let Some(mut link) = list {
        sum = sum.wrapping_mul(3).wrapping_add(link.number);
        list = link.next.take();
    }
    names.iter().fold(sum, |sum, (key, list)| sum.wrapping_mul(5).wrapping_add(key + list.len() as u64))
}

fn main() {
    panic::set_hook(Box::new(|_| ()));
    for round in 0..100 {
        let caught = panic::catch_unwind(|| {
            let kept = vec![Box::new(round); 10];
            if kept.len() == 10 {
                panic!("{}", round);
            }
        });
        assert!(caught.is_err());
    }
    let threads: Vec<_> = (0..4).map(|seed| thread::spawn(move || work(seed))).collect();
    for thread in threads {
        println!("{:016x}", thread.join().unwrap());
    }
}
