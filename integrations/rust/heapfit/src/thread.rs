//! Which thread this is, at the price of reading one thread-local word.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number for the calling thread that no other has ever had. `std::thread::ThreadId` would do, but
/// asking for it costs a count of references, and it is gone while a thread exits.
#[inline]
pub(crate) fn number() -> u64 {
    thread_local! {
        // Without a destructor, and so there as long as the thread is.
        static NUMBER: Cell<u64> = const { Cell::new(0) };
    }
    NUMBER.with(|number| match number.get() {
        0 => assign(number),
        known => known,
    })
}

#[cold]
fn assign(number: &Cell<u64>) -> u64 {
    static NUMBERS: AtomicU64 = AtomicU64::new(1);
    // Relaxed: only that no two are equal matters.
    number.set(NUMBERS.fetch_add(1, Ordering::Relaxed));
    number.get()
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn a_thread_keeps_its_number_and_shares_it_with_none() {
        let mine = number();
        assert_eq!(mine, number());
        let theirs = std::thread::spawn(number).join().unwrap();
        let next = std::thread::spawn(number).join().unwrap();
        assert!(mine != theirs && theirs != next && mine != next);
    }
}
